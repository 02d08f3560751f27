"""--average, --transpositions and `triptych average`, from the command line to refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import triptych
from triptych.training.run.checkpoint import read_checkpoint


def test_an_average_is_scored_and_sampled(cli, music_run, tmp_path: Path) -> None:
    file = tmp_path / "score.json"
    options = ["--checkpoint", music_run.checkpoint, "--average", music_run.checkpoint]
    options += ["--transpositions", 1]
    assert cli("evaluate", "music", *options, "--json", file).code == 0
    score = json.loads(file.read_text())
    assert score["checkpoint"]["average"] == [str(music_run.checkpoint)]
    assert score["checkpoint"]["transpositions"] == 1
    model = triptych.load(music_run.checkpoint, device="cpu")
    expected = model.averaged(transpositions=1).evaluate("test").metrics
    assert score["metrics"] == pytest.approx(expected, abs=1e-6)
    answer = cli("sample", "music", *options, "--out", "out", "--count", 1, "--seconds", 0.5)
    assert answer.code == 0, answer
    assert (tmp_path / "out/piece-00.mid").is_file()


@pytest.mark.slow
def test_two_models_translate_as_one(cli, english_checkpoint, tmp_path: Path) -> None:
    lines = b"sieben\neinundzwanzig\nhundert\n"
    one = cli("translate", "--checkpoint", english_checkpoint, stdin=lines)
    same = cli(
        *("translate", "--checkpoint", english_checkpoint),
        *("--average", english_checkpoint, english_checkpoint), stdin=lines,
    )  # fmt: skip
    assert same.code == 0, same
    assert same.out == one.out


def test_other_models_are_refused_by_name(
    refused, image_checkpoint, translation_checkpoint, english_checkpoint
) -> None:
    sample = ["--checkpoint", image_checkpoint, "--out", "out", "--average"]
    refused("sample", "image", *sample, translation_checkpoint, says=["is of the domain"])
    refused("sample", "image", *sample, "missing.ckpt", says=["missing.ckpt"])
    refused(
        *("translate", "--checkpoint", english_checkpoint, "--average", translation_checkpoint),
        says=[str(english_checkpoint), str(translation_checkpoint), "vocabulary"],
    )


def changed(checkpoint: Path, path: Path, factor: float, **header: object) -> Path:
    """Write a checkpoint with all weights times a factor, and other fields of its header."""
    content = read_checkpoint(checkpoint)
    content["state_dict"] = {key: w * factor for key, w in content["state_dict"].items()}
    content["triptych"] |= header
    torch.save(content, path)
    return path


def test_the_mean_of_weights_opens_and_is_scored(cli, music_run, tmp_path: Path) -> None:
    thrice = changed(music_run.checkpoint, tmp_path / "thrice.ckpt", 3.0, step=2)
    twice = changed(music_run.checkpoint, tmp_path / "twice.ckpt", 2.0)
    answer = cli("average", music_run.checkpoint, thrice, "--out", "mean.ckpt")
    assert answer.code == 0, answer
    expected = triptych.load(twice, device="cpu")
    model = triptych.load("mean.ckpt", device="cpu")
    torch.testing.assert_close(model.model.state_dict(), expected.model.state_dict())
    assert [part["step"] for part in model.header["averaged"]] == [3, 2]
    assert model.header["step"] == 3
    answer = cli("evaluate", "music", "--checkpoint", "mean.ckpt", "--json", "mean.json")
    assert answer.code == 0, answer
    score = json.loads((tmp_path / "mean.json").read_text())["metrics"]
    assert score == pytest.approx(expected.evaluate("test").metrics, abs=1e-6)
    assert cli("export", "mean.ckpt", "--format", "safetensors", "--out", "folder").code == 0


def test_weights_of_other_models_are_not_averaged(
    refused, music_run, image_checkpoint, tmp_path: Path
) -> None:
    own, out = music_run.checkpoint, ["--out", "mean.ckpt"]
    says = [str(own), "cannot be averaged"]
    refused("average", own, image_checkpoint, *out, says=[*says, "domain differs"])
    other = changed(own, tmp_path / "other.ckpt", 1.0, vocabulary=["x"])
    refused("average", own, other, *out, says=[*says, "vocabulary differs"])
    content = read_checkpoint(own)
    name = next(iter(content["state_dict"]))
    content["state_dict"][name] = torch.zeros(1, 1)
    torch.save(content, other)
    refused("average", own, other, *out, says=[*says, name])
    refused("average", own, own, "--out", other, says=["--overwrite"])
    refused("average", own, "missing.ckpt", *out, says=["missing.ckpt"])
