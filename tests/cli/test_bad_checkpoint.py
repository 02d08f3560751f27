"""Wrong checkpoints, impossible options and unwritable results: one sentence, no file changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch


def foreign_checkpoints(good: Path, folder: Path) -> dict[str, str]:
    """Files that are no checkpoints of ours, and what is said of each."""
    content = good.read_bytes()
    torch.save({"weights": torch.zeros(2)}, folder / "dict.ckpt")
    torch.save({"state_dict": {}, "epoch": 3}, folder / "lightning.ckpt")
    torch.save(torch.nn.Linear(2, 2), folder / "object.ckpt")
    (folder / "text.ckpt").write_text("hello")
    (folder / "empty.ckpt").write_bytes(b"")
    (folder / "half.ckpt").write_bytes(content[: len(content) // 2])
    (folder / "nearly.ckpt").write_bytes(content[:-10])
    (folder / "folder.ckpt").mkdir()
    return {
        "dict.ckpt": "not written by Triptych",
        "lightning.ckpt": "not written by Triptych",
        "object.ckpt": "not written by Triptych",
        "text.ckpt": "is no checkpoint, cut off or damaged",
        "empty.ckpt": "is no checkpoint, cut off or damaged",
        "half.ckpt": "is no checkpoint, cut off or damaged",
        "nearly.ckpt": "is no checkpoint, cut off or damaged",
        "folder.ckpt": "is a folder",
        "nowhere.ckpt": "does not exist",
    }


def test_a_checkpoint_that_is_none(refused, tmp_path: Path, image_checkpoint: Path) -> None:
    options = ["evaluate", "image", "--json", "new/score.json"]
    for name, said in foreign_checkpoints(image_checkpoint, tmp_path).items():
        refused(*options, "--checkpoint", name, says=[name, said, "expected"])
    refused(*options, "--checkpoint", "", says=["--checkpoint is empty", "expected"])
    for options in (["sample", "image", "--out", "new/folder"], ["translate"]):
        refused(
            *options, "--checkpoint", "half.ckpt", says=["is no checkpoint, cut off or damaged"]
        )


def test_a_missing_checkpoint_is_named_with_one_of_its_run(refused, tmp_path: Path) -> None:
    kept = tmp_path / "runs/a/checkpoints/last.ckpt"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"")
    missing = "runs/a/checkpoints/best.ckpt"
    says = [f"{missing} does not exist", "runs/a/checkpoints/last.ckpt"]
    refused("evaluate", "image", "--checkpoint", missing, says=says)


def test_a_checkpoint_of_another_domain(
    refused, image_checkpoint: Path, translation_checkpoint: Path
) -> None:
    for options, path, found, wanted in [
        (["evaluate", "image", "--json", "a/b"], translation_checkpoint, "translation", "image"),
        (["sample", "music", "--out", "a/b"], image_checkpoint, "image", "music"),
        (["translate"], image_checkpoint, "image", "translation"),
    ]:
        says = [str(path), f"domain {found}", f"expected a checkpoint of the domain {wanted}"]
        refused(*options, "--checkpoint", path, says=says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--temperature", -1],
            ["the command line: temperature must be at least 0, got -1.0"],
        ),
        (["--seed", -1], ["the command line: seed must be from 0", "got -1"]),
        (["--device", "tpu9"], ["device is", "expected auto, cpu, cuda"]),
        (["--device", "cuda:99"], ["device is cuda:99", "does not have"]),
        (["--temperatur", 1], ["--temperatur;", "did you mean --temperature?"]),
    ],
    ids=lambda value: " ".join(map(str, value))[:40],
)
def test_impossible_sampling(
    refused, image_checkpoint: Path, options: list[Any], says: list[str]
) -> None:
    refused(
        "sample", "image", "--checkpoint", image_checkpoint, "--out", "new", *options, says=says
    )


@pytest.mark.parametrize("label", [-1, 10])
def test_a_label_out_of_range(refused, image_checkpoint: Path, label: int) -> None:
    refused(
        "sample", "image", "--checkpoint", image_checkpoint, "--out", "new", "--label", label,
        says=[f"label is {label}", "10 classes, counted from 0"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seconds", 1, "--length", 4], ["seconds and length were both given"]),
        (["--primer", "nowhere.mid"], ["--primer nowhere.mid does not exist", "a MIDI file"]),
        (["--primer", "bad.mid"], ["bad.mid is not a MIDI file"]),
        (["--scale", "H:major"], ["scale is 'H:major'", "from A to G"]),
        (["--ranges", "textbook"], ["ranges is textbook", "has no voices"]),
    ],
    ids=lambda value: " ".join(map(str, value))[:40],
)
def test_impossible_music(
    refused, tmp_path: Path, music_run, options: list[Any], says: list[str]
) -> None:
    whole = (music_run.folder / "midi/p0.mid").read_bytes()
    (tmp_path / "bad.mid").write_bytes(whole[20:])  # no header
    (tmp_path / "text.mid").write_text("not music\n" * 20)
    command = ["sample", "music", "--checkpoint", music_run.checkpoint, "--out", "new"]
    refused(*command, *options, says=says)


def test_bytes_that_are_no_text(refused, translation_checkpoint: Path) -> None:
    for stdin, line, byte in [(b"one\ntw\xffo\n", 2, "0xff"), (b"\xc3", 1, "0xc3")]:
        says = [f"standard input, line {line} is not UTF-8: byte {byte}"]
        refused("translate", "--checkpoint", translation_checkpoint, stdin=stdin, says=says)


class TestOutput:
    """Where results go is looked at first and made last."""

    def test_the_out_folder_is_a_file(
        self, refused, tmp_path: Path, image_checkpoint: Path
    ) -> None:
        (tmp_path / "file").write_text("kept")
        for out in ("file", "file/inside"):
            refused(
                "sample", "image", "--checkpoint", image_checkpoint, "--out", out,
                says=[f"--out {out}", "is a file", "expected a folder"],
            )  # fmt: skip

    def test_the_out_folder_cannot_be_written(
        self, refused, image_checkpoint: Path, unwritable: None
    ) -> None:
        checkpoint = ["--checkpoint", image_checkpoint]
        says = ["new", "Permission denied"]
        refused("sample", "image", *checkpoint, "--out", "new", says=["--out", *says])
        refused("evaluate", "image", *checkpoint, "--json", "new/a", says=["--json", *says])

    def test_existing_samples_are_kept(
        self, refused, tmp_path: Path, image_checkpoint: Path
    ) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/sample-0001.png").write_bytes(b"kept")
        command = ["sample", "image", "--checkpoint", image_checkpoint, "--out", "out"]
        refused(*command, "--count", 2, says=["out already holds sample-0001.png", "--overwrite"])

    def test_where_the_score_goes(self, refused, tmp_path: Path, image_checkpoint: Path) -> None:
        (tmp_path / "file").write_text("kept")
        (tmp_path / "folder").mkdir()
        command = ["evaluate", "image", "--checkpoint", image_checkpoint, "--json"]
        refused(*command, "folder", says=["--json folder is a folder", "expected the name"])
        refused(*command, "file/a.json", says=["--json file/a.json", "is a file"])
        refused(*command, "", says=["--json is empty"])


def test_a_split_that_does_not_exist(
    refused, image_checkpoint: Path, translation_checkpoint: Path, music_run
) -> None:
    for domain, path in [
        ("image", image_checkpoint),
        ("translation", translation_checkpoint),
        ("music", music_run.checkpoint),
    ]:
        says = ["'dev'", "train", "validation", "test"]
        command = ["evaluate", domain, "--checkpoint", path, "--json", "new/score.json"]
        refused(*command, "--split", "dev", says=says)
        refused(*command, "--data", "nowhere", says=["--data nowhere does not exist", "expected"])


def test_other_data_for_a_model_that_reads_no_folder(
    refused, tmp_path: Path, image_checkpoint: Path
) -> None:
    command = ["evaluate", "image", "--checkpoint", image_checkpoint, "--data", tmp_path]
    refused(*command, says=["Digits", "reads no folder"])
