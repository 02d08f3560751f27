"""`triptych new-run`: the file that it writes trains."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from starter_data import sentences, write_lines, write_music, write_pictures


def write_texts(folder: Path, count: int = 2000) -> Path:
    for language in ("fr", "en"):
        write_lines(folder / f"train.{language}", sentences(language, count))
    return folder


def write_parts(folder: Path) -> Path:
    for split, count in (("train", 300), ("dev", 20)):
        write_lines(folder / f"{split}.txt", sentences("fr", count))
    return folder


def write_labels(folder: Path) -> Path:
    labels = {"fr": "French", "en": "English"}
    lines = [f"{line}\t{name}" for code, name in labels.items() for line in sentences(code, 150)]
    write_lines(folder / "labels.tsv", ["text\tlanguage", *lines])
    return folder


WRITERS = {
    "image": (write_pictures, [], ["--data.samples", 0]),
    "music": (write_music, [], ["--data.samples", 0]),
    "translation": (write_texts, [], ["--data.validation_lines", 2]),
    "text": (lambda folder: write_lines(folder / "a.txt", sentences("en", 300)), [], []),
    "masked": (write_parts, ["--task", "masked"], []),
    "labels": (write_labels, [], []),
}
"""Data, options of new-run, and options of a short training."""


def test_a_file_is_written_with_what_was_found(cli, tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", 200)
    command = ["new-run", "translation", "--data", "texts", "--out", "my/first.yaml"]
    answer = cli(*command)
    assert answer.code == 0, answer.err
    assert "200 sentence pairs" in answer.err
    text = (tmp_path / "my/first.yaml").read_text(encoding="utf-8")
    header = text[: text.index("\ndata:")]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    assert "triptych train translation --config my/first.yaml" in header
    assert "200 sentence pairs" in header
    assert yaml.safe_load(text)["run"]["name"] == "translation/first"
    assert cli(*command).code == 2
    assert (tmp_path / "my/first.yaml").read_text(encoding="utf-8") == text
    assert cli(*command, "--overwrite").code == 0


def test_refusals_write_nothing(refused, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = ["--out", "x.yaml"]
    refused("new-run", "image", "--data", "empty", *out, says=["holds no images"])
    refused("new-run", "image", "--data", "nowhere", *out, says=["nowhere does not exist"])
    refused("new-run", "image", *out, says=["required: data"])
    refused("new-run", "image", "--data", "empty", "--out", "empty", says=["is a folder"])
    refused("new-run", "language", "--data", "empty", *out, says=["holds no text files"])


@pytest.mark.slow
@pytest.mark.parametrize("data", WRITERS)
def test_the_file_trains(cli: Any, tmp_path: Path, data: str) -> None:
    domain = data if data in ("image", "music", "translation") else "language"
    write, options, few = WRITERS[data]
    write(tmp_path / "data")
    new_run = ("new-run", domain, "--data", "data", "--out", "own.yaml")
    answer = cli(*new_run, *options)
    assert answer.code == 0, answer.err
    assert "own.yaml is ready" in answer.err
    header = (tmp_path / "own.yaml").read_text(encoding="utf-8").partition("\ndata:")[0]
    commands = re.findall(r"^#   triptych (.*)$", header, re.MULTILINE)
    train, evaluate, *others = [shlex.split(command) for command in commands]
    steps = ["--trainer.max_steps", 2, "--trainer.val_check_interval", 2, "--run.wandb", "off"]
    answer = cli(*train, *steps, *few)
    assert answer.code == 0, answer.err
    assert (tmp_path / "runs" / domain / "own/checkpoints/best.ckpt").is_file()
    answer = cli(*evaluate, "--limit", 2)
    assert answer.code == 0, answer.err
    if domain == "language":
        write_lines(tmp_path / "lines.txt", ["the cat", "le chat"])
        answer = cli(*others[0])
        assert answer.code == 0, answer.err
        assert list((tmp_path / "samples").iterdir())
