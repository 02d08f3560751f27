"""--average and --transpositions, from the command line to files and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import triptych


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
