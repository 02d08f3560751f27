"""`scripts/diversify`: from checkpoints to a folder that a training takes."""

from __future__ import annotations

import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from triptych.domains.translation.inference import Translator
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
    forward = next(n for n, source in enumerate(sources) if source not in german)
    assert sources[:forward] == german[:forward], "first the corpus's sources, with new targets"
    assert targets[:forward] != english[:forward]
    assert 250 < forward <= 300
    assert targets[forward:] == english[: len(targets) - forward], "then its targets, in order"
    assert len(targets) - forward > 250

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
    broken = tmp_path / "broken"
    shutil.copytree(text(english_checkpoint), broken)
    shorter = (broken / "validation.en").read_text().splitlines(keepends=True)[:7]
    (broken / "validation.en").write_text("".join(shorter))
    for arguments, says in [
        (
            [*english, "--backward", english_checkpoint],
            "best.ckpt translates de to en; expected en",
        ),
        ([*english, "--data", "nowhere"], "nowhere"),
        (
            ["--forward", image_checkpoint, "--out", "new"],
            f"diversify: --forward {image_checkpoint} is of the domain image; expected",
        ),
        ([*english, "--data", broken], f"{broken}/validation.en has 7"),
        (["--forward", "nowhere.ckpt", "--out", "new"], "--forward nowhere.ckpt does not exist"),
        (["--forward", translation_checkpoint, "--out", full], f"--out {full} is not empty"),
    ]:
        capsys.readouterr()
        assert diversify(*arguments) == 2, says
        said = capsys.readouterr().err
        assert says in said
        assert said.startswith("diversify: ")
        assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "full"]


def test_ctrl_c_is_no_fault(
    diversify: Diversify,
    english_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: Any, **__: Any) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "translate", interrupted)
    data = text(english_checkpoint)
    assert diversify("--forward", english_checkpoint, "--out", "new", "--data", data) == 130
    assert capsys.readouterr().err.endswith("diversify: interrupted\n")
    assert not list(tmp_path.iterdir())
