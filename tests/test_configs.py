"""Every shipped YAML goes through the real parser."""

from __future__ import annotations

import importlib
from inspect import signature
from pathlib import Path

import pytest
import yaml
from pytorch_lightning import Trainer

from triptych.config.schema import from_plain, to_plain
from triptych.domains import names

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
OVERLAYS = sorted((CONFIGS / "overlays").rglob("*.yaml"))
"""Second settings files, which change some settings of a complete one."""
SWEEPS = sorted((CONFIGS / "sweeps").glob("*.yaml"))
"""Searches over settings, in the format of wandb; see test_sweeps.py."""
COMPARISONS = set((CONFIGS / "compare").glob("*.yaml"))
"""Files of `triptych compare`; see cli/test_compare.py."""
FILES = sorted(set(CONFIGS.rglob("*.yaml")) - set(OVERLAYS) - set(SWEEPS) - COMPARISONS)
SECTIONS = {"data", "model", "optim", "run", "trainer"}


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return path.relative_to(CONFIGS).with_suffix("").as_posix()


def test_every_domain_ships_configs() -> None:
    assert {path.parent.name for path in FILES} == set(names())


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_config_is_complete_and_parses(path: Path) -> None:
    content = read(path)
    more = {"language": {"task"}, "gan": {"discriminator_rate"}}
    assert set(content) == SECTIONS | more.get(path.parent.name, set())
    trainer = content.pop("trainer")
    config_class = importlib.import_module(f"triptych.domains.{path.parent.name}.task").Config
    config = from_plain(config_class, content)
    assert from_plain(config_class, to_plain(config)) == config
    assert config.run.name == name(path), "a run is named after its file"
    assert "max_steps" in trainer or "max_epochs" in trainer
    assert set(trainer) <= set(signature(Trainer.__init__).parameters)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_config_tells_how_it_is_run(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert f"triptych train {path.parent.name} --config configs/{name(path)}.yaml" in text


@pytest.mark.parametrize("path", OVERLAYS, ids=name)
def test_an_overlay_changes_the_config_that_its_comment_names(path: Path) -> None:
    from triptych.cli.options import parser_of
    from triptych.config.schema import parse_settings
    from triptych.domains import find_domain

    domain = path.parent.name
    base = CONFIGS / domain / f"{path.stem.removesuffix('-unconditional')}.yaml"
    text = path.read_text(encoding="utf-8")
    assert f"configs/{name(base)}.yaml" in text
    assert f"--config configs/{name(path)}.yaml" in text
    files = [["--config", str(file)] for file in (base, path)]
    first, _ = parse_settings(parser_of("train", find_domain(domain)), files[0])
    both, _ = parse_settings(parser_of("train", find_domain(domain)), files[0] + files[1])
    assert first.model.class_conditional
    assert not both.model.class_conditional
    assert both.run.name == f"{domain}/{path.stem}"
    assert both.model.transformer == first.model.transformer
    assert both.data == first.data
