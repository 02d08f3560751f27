"""`triptych new-run`: the file that it writes trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from starter_data import sentences, write_lines, write_music, write_pictures


def write_texts(folder: Path, count: int = 2000) -> Path:
    for language in ("fr", "en"):
        write_lines(folder / f"train.{language}", sentences(language, count))
    return folder


WRITERS = {"image": write_pictures, "music": write_music, "translation": write_texts}


def test_a_file_is_written_with_what_was_found(cli, tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", 200)
    command = ["new-run", "translation", "--data", "texts", "--out", "my/first.yaml"]
    answer = cli(*command, "--timed_steps", 0)
    assert answer.code == 0, answer.err
    assert "200 sentence pairs" in answer.err
    text = (tmp_path / "my/first.yaml").read_text(encoding="utf-8")
    header = text[: text.index("\ndata:")]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    assert "triptych train translation --config my/first.yaml" in header
    assert "200 sentence pairs" in header
    assert yaml.safe_load(text)["run"]["name"] == "translation/first"
    assert cli(*command, "--timed_steps", 0).code == 2
    assert (tmp_path / "my/first.yaml").read_text(encoding="utf-8") == text
    assert cli(*command, "--timed_steps", 0, "--overwrite").code == 0


def test_refusals_write_nothing(refused, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    out = ["--out", "x.yaml"]
    refused("new-run", "image", "--data", "empty", *out, says=["holds no images"])
    refused("new-run", "image", "--data", "nowhere", *out, says=["nowhere does not exist"])
    refused("new-run", "image", *out, says=["required: data"])
    refused("new-run", "image", "--data", "empty", "--out", "empty", says=["is a folder"])
    refused("new-run", "language", says=["has no command new-run", "image, music, translation"])
    refused("new-run", "image", "--data", "e", *out, "--timed_steps", "-1", says=["at least 0"])


@pytest.mark.slow
@pytest.mark.parametrize("domain", WRITERS)
def test_the_file_trains(cli: Any, tmp_path: Path, domain: str) -> None:
    WRITERS[domain](tmp_path / "data")
    answer = cli("new-run", domain, "--data", "data", "--out", "own.yaml", "--timed_steps", 1)
    assert answer.code == 0, answer.err
    assert "estimate: " in answer.err
    steps = ["--trainer.max_steps", 2, "--trainer.val_check_interval", 2, "--run.wandb", "off"]
    few = ["--data.samples", 0] if domain != "translation" else ["--data.validation_lines", 2]
    answer = cli("train", domain, "--config", "own.yaml", *steps, *few)
    assert answer.code == 0, answer.err
    best = tmp_path / "runs" / domain / "own/checkpoints/best.ckpt"
    assert best.is_file()
    answer = cli("evaluate", domain, "--checkpoint", best, "--limit", 2)
    assert answer.code == 0, answer.err
