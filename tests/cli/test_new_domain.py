"""A domain outside Triptych works through the command line, and only where the user names it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
import yaml

import triptych
from triptych.cli.main import main
from triptych.config.schema import from_plain
from triptych.domains.image.config import Config as ImageConfig
from triptych.errors import UserError

TESTS = Path(__file__).resolve().parents[1]
SETTINGS = {
    "optim": {
        "learning_rate": 1e-2,
        "schedule": {"class_path": "Constant", "init_args": {"warmup_steps": 5}},
    },
    "run": {"wandb": "off"},
    "trainer": {"max_steps": 150, "accelerator": "cpu", "num_sanity_val_steps": 0},
}


def forget(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))


@pytest.fixture(scope="module")
def toy_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.yaml").write_text(yaml.safe_dump(SETTINGS))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TESTS))
        patch.chdir(folder)
        assert main(["train", "toy_domain", "--config", "toy.yaml"]) == 0
    return folder / "runs/run/checkpoints/best.ckpt"


def test_play_shows_the_page_that_the_domain_names(toy_checkpoint: Path) -> None:
    pytest.importorskip("gradio", reason="gradio is not installed (extra play)")
    from triptych.tools.play.app import build

    model = triptych.load(toy_checkpoint, domain="toy_domain")
    values = [c["props"].get("value") for c in build({"toy": model}).config["components"]]
    assert "A motif of 5 numbers" in values


def test_train_evaluate_and_sample(cli, tmp_path: Path, toy_checkpoint: Path) -> None:
    named = ["toy_domain", "--checkpoint", toy_checkpoint]
    answer = cli("evaluate", *named, "--json", "score.json")
    assert answer.code == 0, answer.err
    nats = json.loads((tmp_path / "score.json").read_text())["metrics"]["nats_per_number"]
    # Three of twelve numbers cannot be predicted.
    assert math.log(5) / 4 - 0.05 < nats < 0.6 * math.log(5)
    assert "nats_per_number" in answer.out
    for out in ("a", "b"):
        answer = cli("sample", *named, "--out", out, "--count", 3, "--seed", 5)
        assert answer.code == 0, answer.err
        assert f"3 sequences in {out}/numbers.txt" in answer.err
    assert (tmp_path / "a/numbers.txt").read_bytes() == (tmp_path / "b/numbers.txt").read_bytes()
    assert len((tmp_path / "a/numbers.txt").read_text().splitlines()) == 3
    again = cli("sample", *named, "--out", "a")
    assert again.code == 0, "without names of files nothing can be in the way"


def test_its_help_and_its_limits(cli, refused, toy_checkpoint: Path) -> None:
    assert "--temperature" in cli("sample", "toy_domain", "--help").out
    named = ["toy_domain", "--checkpoint", toy_checkpoint]
    refused("attention", *named, says=["toy_domain has no command attention"])
    refused("new-run", "toy_domain", says=["no command new-run", "image, language, music"])
    assert "in bf16" in cli("evaluate", *named, "--dtype", "bf16").out
    refused("evaluate", "image", *named[1:], says=["is of the domain toy_domain"])
    refused("train", "toy_domian", says=["there is no domain 'toy_domian'"])
    refused("train", "json", says=["there is no domain 'json'"])


def test_export_writes_the_card_of_the_domain(cli, tmp_path: Path, toy_checkpoint: Path) -> None:
    forget("toy_domain")
    written = ["--format", "safetensors", "--out", "exported"]
    answer = cli("export", toy_checkpoint, *written)
    assert answer.code == 2
    assert "--plugin toy_domain.domain" in answer.err
    answer = cli("export", toy_checkpoint, *written, "--plugin", "toy_domain.domain")
    assert answer.code == 0, answer.err
    card = (tmp_path / "exported/README.md").read_text()
    assert "triptych sample toy_domain --checkpoint" in card
    assert "Motifs of more than three numbers." in card
    of = ["toy_domain", "--checkpoint", "exported"]
    assert cli("sample", *of, "--out", "samples").code == 0
    answer = cli(
        "export", toy_checkpoint, "--plugin", "toy_domain.domain", "--format", "hf", "--out", "hf"
    )
    assert answer.code == 2
    assert "the DecoderOnly of the domain toy_domain" in answer.err


def test_a_checkpoint_by_itself_imports_no_package(toy_checkpoint: Path) -> None:
    forget("toy_domain")
    with pytest.raises(UserError, match="domain='toy_domain'"):
        triptych.load(toy_checkpoint)
    assert "toy_domain" not in sys.modules
    model = triptych.load(toy_checkpoint, domain="toy_domain")
    assert model.domain == "toy_domain"
    assert model.evaluate(limit=4).count == 4
    with pytest.raises(UserError, match="expected a checkpoint of the domain image"):
        triptych.load(toy_checkpoint, domain="image")


@pytest.mark.parametrize("domain", ["image.inference", "../image", "os", ["image"], None])
def test_a_checkpoint_of_no_domain(tmp_path: Path, toy_checkpoint: Path, domain: object) -> None:
    content = torch.load(toy_checkpoint, weights_only=True)
    content["triptych"]["domain"] = domain
    torch.save(content, tmp_path / "odd.ckpt")
    with pytest.raises(UserError, match="is of the domain"):
        triptych.load(tmp_path / "odd.ckpt")


@pytest.mark.parametrize(
    "attention",
    [
        "toy_domain.domain.Config",
        {"class_path": "toy_domain.domain.Config"},
        {"class_path": "toy_domain.domain.Config", "init_args": {}},
    ],
    ids=str,
)
def test_settings_import_no_class_of_another_package(attention: object) -> None:
    forget("toy_domain")
    plain = {"model": {"transformer": {"attention": attention}}}
    with pytest.raises(UserError, match=r"import toy_domain\.domain first .*--plugin"):
        from_plain(ImageConfig, plain)
    with pytest.raises(UserError, match="--plugin"):
        from_plain(ImageConfig, {"data": {"source": attention}})
    assert "toy_domain" not in sys.modules
