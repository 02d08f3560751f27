"""Every model that the package ships is whole, small, opens at once, and says what it is."""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import torch

import triptych
from triptych import pretrained
from triptych.errors import UserError
from triptych.tools.export import safetensors
from triptych.tools.export.original import open_original
from triptych.training.run.checkpoint import read_checkpoint

ROOT = Path(__file__).resolve().parents[1]
NAMES = pretrained.names()
ENDINGS = (pretrained.WEIGHTS, pretrained.METADATA, pretrained.CARD)
MOST = 40_000_000  # bytes of all files together
SHIPPED = ("image", "music", "translation")


def strings(value: Any) -> list[str]:
    """Every string in plain settings."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_a_wheel_carries_all_files_and_nothing_else_lies_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["triptych.pretrained"]
    files = [path for path in pretrained.FOLDER.iterdir() if path.suffix not in (".py", ".pyc")]
    files = [path for path in files if path.name != "__pycache__"]
    assert {path.name for path in files} == {name + end for name in NAMES for end in ENDINGS}
    assert {f"*{end}" for end in ENDINGS} == set(patterns)
    assert sum(path.stat().st_size for path in files) < MOST


@pytest.mark.parametrize("domain", SHIPPED)
def test_a_newcomer_finds_a_model_of_the_domain(domain: str) -> None:
    facts = [pretrained.read_metadata(pretrained.find(name)) for name in NAMES]
    assert domain in [found["triptych"]["domain"] for found in facts]


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_what_must_be_known(name: str) -> None:
    facts, card = pretrained.read_metadata(pretrained.find(name)), pretrained.read_card(name)
    assert facts["name"] == name
    for key in ("what", "data", "terms", "time", "hardware", "figure"):
        assert len(facts["card"][key]) > 2
        assert facts["card"][key] in card
    assert f"seed {facts['triptych']['seed']}" in card
    measured = [scores for scores in facts["metrics"].values() if "rounded" in scores]
    assert measured, "how good the rounded weights are was never measured"
    assert all(scores.get("fp32") for scores in measured)


@pytest.mark.parametrize("name", NAMES)
def test_no_path_of_a_machine_is_in_it(name: str) -> None:
    facts = pretrained.read_metadata(pretrained.find(name))
    settings = {key: facts["triptych"][key] for key in ("model", "data", "optim", "run")}
    for text in strings(settings):
        assert not PurePosixPath(text).is_absolute(), text
        assert not text.startswith("~"), text


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_and_does_its_work(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # no data are at hand
    model = triptych.load(f"{pretrained.PREFIX}{name}", device="cpu")
    facts = pretrained.read_metadata(pretrained.find(name))
    domain = facts["triptych"]["domain"]
    network = model.full_model
    assert sum(parameter.numel() for parameter in network.parameters()) == facts["parameters"]
    if domain == "translation":
        (text,) = model.translate(["A man is riding a horse."], beam=1)
        assert text.strip()
    elif domain == "image":
        (image,) = model.sample(1)
        assert image.shape == network.shape
        assert image.std() > 0
    else:
        (piece,) = model.sample(1, length=64)
        assert len(piece.score.notes)


GONE = {
    "data": {"source": {"class_path": "gone.Source", "init_args": {"directory": "gone"}}},
    "optim": {"optimizer": {"class_path": "gone.Optimizer"}, "unknown": 1},
    "run": {"name": "gone", "unknown": 1},
    "trainer": {"unknown": 1},
}


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_alone_reads_the_settings_of_the_run(name: str, tmp_path: Path) -> None:
    content = read_checkpoint(pretrained.find(name))
    path = tmp_path / "gone.ckpt"
    torch.save({**content, "triptych": content["triptych"] | GONE}, path)
    model = triptych.load(path, device="cpu")
    if model.domain == "translation":
        assert model.translate(["A man is riding a horse."], beam=1)
        assert list(model.attention(["A man."], beam=1))  # type: ignore[attr-defined]
    elif model.domain == "music":
        assert model.sample(1, length=4)  # type: ignore[attr-defined]
        assert len(model.attention(seconds=2.0).tokens)  # type: ignore[attr-defined]
    else:
        assert len(model.sample(1))  # type: ignore[attr-defined]
    safetensors.write(open_original(str(path), path, {}), tmp_path)
    again = triptych.load(tmp_path, device="cpu")
    assert again.settings == model.settings
    for opened in (model, again):
        with pytest.raises(UserError, match=r"gone\.Source is a class outside .*--plugin gone"):
            opened.evaluate()
