"""`triptych attention`: pictures and numbers from tiny checkpoints; mistakes end in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image


def is_png(path: Path) -> bool:
    with Image.open(path) as picture:
        return picture.format == "PNG"


@pytest.mark.slow
def test_attention_translation(cli, tmp_path: Path, translation_checkpoint: Path) -> None:
    command = ["attention", "translation", "--checkpoint", translation_checkpoint]
    answer = cli(*command, "--out", "a/b", stdin="one\n\n저는 \U0010fffd\n".encode())
    assert answer.code == 0, answer.err
    assert answer.out == ""
    assert "no installed font has a letter for" in answer.err
    assert "\U0010fffd" in answer.err
    assert answer.err.endswith("2 sentences (.png, attention.json) in a/b\n")
    files = sorted(path.name for path in (tmp_path / "a/b").iterdir())
    assert files == ["attention.json", "sentence-001.png", "sentence-003.png"]
    assert is_png(tmp_path / "a/b/sentence-003.png")
    numbers = json.loads((tmp_path / "a/b/attention.json").read_text(encoding="utf-8"))
    assert [one["drawing"] for one in numbers] == files[1:]
    assert [one["source"] for one in numbers] == ["one", "저는 \U0010fffd"]
    for one in numbers:
        assert len(one["cross"]) == len(one["target_pieces"])
        assert {len(row) for row in one["cross"]} == {len(one["source_pieces"])}

    (tmp_path / "in.txt").write_text("one\n", encoding="utf-8")
    more = ["--input", "in.txt", "--head", 2, "--layer", 1]
    assert cli(*command, "--out", "c", *more).code == 0
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        "attention.json", "sentence-001.png",
    }  # fmt: skip
    assert json.loads((tmp_path / "c/attention.json").read_text())[0]["head"] == 2
    again = cli(*command, "--out", "c", *more)
    assert (again.code, "already holds attention.json" in again.err) == (2, True)
    (tmp_path / "c/attention.json").unlink()
    again = cli(*command, "--out", "c", *more)
    assert (again.code, "already holds sentence-001.png" in again.err) == (2, True)
    assert cli(*command, "--out", "c", *more, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("options", "stdin", "says"),
    [
        ([], b"\n \n", ["standard input has no sentence"]),
        (["--input", "no.txt"], b"", ["--input no.txt does not exist"]),
        (["--layer", 5], b"one", ["layer must be from 1 to 1", "got 5"]),
        ([], b"\xff", ["standard input, line 1 is not UTF-8"]),
    ],
)
def test_attention_translation_refuses(
    refused, translation_checkpoint: Path, options: list[object], stdin: bytes, says: list[str]
) -> None:
    command = ["attention", "translation", "--checkpoint", translation_checkpoint, "--out", "out"]
    refused(*command, *options, stdin=stdin, says=says)


def test_attention_music(cli, tmp_path: Path, music_run) -> None:
    command = ["attention", "music", "--checkpoint", music_run.checkpoint]
    primer = music_run.folder / "midi/p0.mid"
    answer = cli(*command, "--out", "a", "--primer", primer, "--at", 1, "--head", 1)
    assert answer.code == 0, answer.err
    assert "attention.png, attention.json and piece.mid in a: the note at 1.00 s" in answer.err
    assert is_png(tmp_path / "a/attention.png")
    assert (tmp_path / "a/piece.mid").read_bytes()[:4] == b"MThd"
    numbers = json.loads((tmp_path / "a/attention.json").read_text())
    assert len(numbers["tokens"]) == len(numbers["seconds"]) == len(numbers["weights"]) + 1
    assert numbers["weights"] == numbers["heads"][0]
    assert len(numbers["heads"]) == 2
    assert numbers["tokens"][-1].startswith("note_on")


def test_attention_music_refuses(refused, music_run) -> None:
    command = ["attention", "music", "--checkpoint", music_run.checkpoint, "--out", "out"]
    refused(*command, "--seconds", 0, says=["seconds must be above 0"])
    refused(*command, "--primer", "no.mid", says=["--primer no.mid does not exist"])


def test_attention_image(cli, refused, tmp_path: Path, image_checkpoint: Path) -> None:
    command = ["attention", "image", "--checkpoint", image_checkpoint]
    answer = cli(*command, "--out", "a", "--label", 3)
    assert answer.code == 0, answer.err
    assert answer.err.endswith("attention.png and attention.json are in a\n")
    assert is_png(tmp_path / "a/attention.png")
    numbers = json.loads((tmp_path / "a/attention.json").read_text())
    assert (numbers["layer"], numbers["head"], numbers["label"]) == (1, None, 3)
    assert len(numbers["pixels"]) == 6
    assert len(numbers["pixels"][0]["weights"]) == len(numbers["image"]) == 8
    assert cli(*command, "--out", "b", "--row", 7, "--column", 2, "--head", 2).code == 0
    numbers = json.loads((tmp_path / "b/attention.json").read_text())
    assert [(one["row"], one["column"]) for one in numbers["pixels"]] == [(7, 2)]
    refused(*command, "--out", "c", "--row", 1, says=["row and column name a pixel together"])


def test_evaluate_by_position(cli, tmp_path: Path, music_run) -> None:
    command = ["evaluate", "music", "--checkpoint", music_run.checkpoint, "--limit", 2]
    windows = ["--sequence_length", 64, "--overlap", 0, "--bucket", 8]
    answer = cli(*command, *windows, "--by_position", "curve/a.json", "--json", "score.json")
    assert answer.code == 0, answer.err
    curve = json.loads((tmp_path / "curve/a.json").read_text())
    score = json.loads((tmp_path / "score.json").read_text())
    assert (curve["trained_length"], curve["sequence_length"], curve["overlap"]) == (32, 64, 0)
    assert curve["positions_per_bucket"] == 8
    assert [bucket["first"] for bucket in curve["buckets"][:3]] == [0, 8, 16]
    assert curve["metrics"] == score["metrics"]
    assert {"nats_per_token_within", "nats_per_token_beyond"} <= score["metrics"].keys()
    assert "nats_per_token_beyond" in answer.out
    tokens = sum(bucket["tokens"] for bucket in curve["buckets"])
    assert tokens == score["details"]["tokens"]
    total = sum(bucket["tokens"] * bucket["nats_per_token"] for bucket in curve["buckets"])
    assert total / tokens == pytest.approx(score["metrics"]["nats_per_token"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--sequence_length", 16, "--overlap", 16],
            ["overlap must be less than sequence_length, got 16"],
        ),
        (["--by_position", "."], ["--by_position . is a folder"]),
        (["--by_position", "a", "--json", "a"], ["--by_position and --json both name a"]),
    ],
)
def test_evaluate_refuses_windows(
    refused, music_run, options: list[object], says: list[str]
) -> None:
    refused("evaluate", "music", "--checkpoint", music_run.checkpoint, *options, says=says)
