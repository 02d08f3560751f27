"""`scripts/diversify`: from checkpoints to a folder that a training takes."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from triptych.domains.translation.lines import read_lines

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/diversify"
Diversify = Callable[..., int]


@pytest.fixture
def diversify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Diversify:
    """Call the script in this process with its arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: Any) -> int:
        monkeypatch.setattr(sys, "argv", ["diversify", *map(str, arguments)])
        return int(runpy.run_path(str(SCRIPT))["main"]())

    return call


def test_a_training_takes_the_folder(
    diversify: Diversify,
    cli: Any,
    english_checkpoint: Path,
    translation_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The German of a numeral model is read, its English written by a model, and the other way."""
    models = ["--forward", english_checkpoint, "--backward", translation_checkpoint]
    capsys.readouterr()
    assert diversify(*models, "--out", "new", "--beam", 1, "--data", text(english_checkpoint)) == 0
    said = capsys.readouterr()
    assert "300 pairs and " in said.out
    assert "new/source.yaml" in said.out
    assert "translated lines: 600 of 600" in said.err
    german, english = (read_lines(Path(f"new/train.{side}")) for side in ("de", "en"))
    sources, targets = (read_lines(Path(f"new/diversified.{side}.gz")) for side in ("de", "en"))
    assert len(german) == len(english) == 300
    by_forward = [n for n in range(len(sources)) if sources[n] in set(german)]
    by_backward = [n for n in range(len(targets)) if targets[n] in set(english)]
    assert len(by_forward) >= 250, "its sources are those of the corpus"
    assert sources[:250] == german[:250]
    assert len({*by_forward, *by_backward}) == len(sources)

    content = yaml.safe_load((english_checkpoint.parents[1] / "config.yaml").read_text())
    content["run"] = {"wandb": "off", "name": "again"}
    content["trainer"]["max_steps"] = 1
    Path("recipe.yaml").write_text(yaml.safe_dump(content))
    answer = cli("train", "translation", "--config", "recipe.yaml", "--config", "new/source.yaml")
    assert answer.code == 0, answer.err
    kept = yaml.safe_load(Path("runs/again/config.yaml").read_text())
    assert kept["data"]["source"]["init_args"]["directory"] == "new"
    assert kept["data"]["source"]["init_args"]["files"]["train"][1] == "diversified.{language}.gz"


def text(checkpoint: Path) -> Path:
    return checkpoint.parents[3] / "text"


def test_what_is_wrong_is_told_before_anything_is_translated(
    diversify: Diversify,
    english_checkpoint: Path,
    translation_checkpoint: Path,
    image_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    english = ["--forward", english_checkpoint, "--out", "new"]
    for arguments, says in [
        (
            [*english, "--backward", english_checkpoint],
            "best.ckpt translates de to en; expected en",
        ),
        ([*english, "--data", "nowhere"], "nowhere"),
        (["--forward", image_checkpoint, "--out", "new"], "is of the domain image; expected"),
        (["--forward", "nowhere.ckpt", "--out", "new"], "--forward nowhere.ckpt does not exist"),
        (["--forward", translation_checkpoint, "--out", full], f"--out {full} is not empty"),
    ]:
        capsys.readouterr()
        assert diversify(*arguments) == 2, says
        said = capsys.readouterr().err
        assert says in said
        assert said.startswith("diversify: ")
        assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
