"""`scripts/convert_checkpoints`: headers of format 1 become those of format 2."""

from __future__ import annotations

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from triptych import pretrained
from triptych.training.run.checkpoint import read_checkpoint

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "convert_checkpoints"
PARTS = ("data", "model", "task", "optim", "run")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    loader = SourceFileLoader("convert_checkpoints", str(SCRIPT))
    module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def older(header: dict[str, Any]) -> dict[str, Any]:
    """The header as format 1 had it."""
    header = json.loads(json.dumps(header))
    config = {name: header.pop(name) for name in PARTS if name in header}
    facts = ("versions", "commit", "seed", "step", "metrics", "domain", "vocabulary")
    if header["domain"] == "music":
        tokenizer = config["model"].pop("tokenizer")
        config["data"]["source"].setdefault("init_args", {})["tokenizer"] = tokenizer
    optim = config["optim"]
    optim |= {"optimizer": "muon", **optim["optimizer"]["init_args"]}
    optim |= {"schedule": "cosine", "warmup_steps": optim["schedule"]["init_args"]["warmup_steps"]}
    return {"format": 1, "config": config, **{key: header[key] for key in facts}}


@pytest.mark.parametrize("name", pretrained.names())
def test_a_checkpoint_opens_again_with_what_else_it_holds(
    script: ModuleType, name: str, tmp_path: Path
) -> None:
    content = read_checkpoint(pretrained.find(name))
    before = content["triptych"]
    state = {"exp_avg": torch.ones(3)}
    path = tmp_path / "a.ckpt"
    torch.save({**content, "triptych": older(before), "optimizer_states": [state]}, path)
    assert script.main([str(path)]) == 0
    found = read_checkpoint(path)
    after = found["triptych"]
    init = after["optim"]["schedule"]["init_args"]
    assert init.setdefault("min_ratio", 0.0) == 0.0  # its default, which the old one did not name
    assert after == before
    assert found["optimizer_states"][0]["exp_avg"].tolist() == [1, 1, 1]
    assert all(torch.equal(found["state_dict"][k], v) for k, v in content["state_dict"].items())
    assert script.main([str(path)]) == 0  # format 2 stays


@pytest.mark.parametrize("named", [None, "chorales.ChoraleTokenizer"])
def test_the_tokenizer_of_music_moves_to_the_model(script: ModuleType, named: str | None) -> None:
    header = older(read_checkpoint(pretrained.find("jsb-chorales"))["triptych"])
    package = "triptych.domains.music"
    init: dict[str, Any] = {"directory": "midi"}
    if named is not None:
        init["tokenizer"] = {"class_path": f"{package}.tokenizers.{named}", "init_args": {}}
    kind = f"{package}.sources.midi_folder.MidiFolder"
    header["config"]["data"]["source"] = {"class_path": kind, "init_args": init}
    after = script.converted(header)
    expected = f"{package}.tokenizers.{named or 'events.EventTokenizer'}"
    assert after["model"]["tokenizer"]["class_path"] == expected
    assert after["data"]["source"]["init_args"] == {"directory": "midi"}


def test_a_task_of_images_goes_and_a_gan_is_of_its_own_domain(script: ModuleType) -> None:
    package = "triptych.domains.image.tasks"
    header = older(read_checkpoint(pretrained.find("mnist"))["triptych"])
    header["config"]["task"] = {"class_path": f"{package}.autoregressive.Autoregressive"}
    after = script.converted(header)
    assert after["domain"] == "image"
    assert "task" not in after
    sizes = {"latent": 4, "channels": 8, "n_blocks": 1, "attention_side": 14}
    gan = {**sizes, "class_conditional": True, "discriminator_rate": 2.0}
    header["config"] |= {
        "optim": {"optimizer": "adam", "schedule": "constant", "betas": [0.0, 0.9]},
        "task": {"class_path": f"{package}.gan.Gan", "init_args": gan},
    }
    after = script.converted(header)
    assert (after["domain"], after["discriminator_rate"]) == ("gan", 2.0)
    assert after["model"] == {**sizes, "class_conditional": True}
    assert after["data"]["source"]["class_path"] == "triptych.domains.pictures.sources.MNIST"


def test_another_file_is_refused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert script.main([str(tmp_path / "a.json")]) == 2
    assert "a.json is no checkpoint or exported model of format 1" in capsys.readouterr().err
