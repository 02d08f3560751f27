"""What pyproject.toml asks for: ranges, and none of the releases that were compromised."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    Requirement(line)
    for lines in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for line in lines
]


@pytest.mark.parametrize("bad", ["2.6.2", "2.6.3"])
def test_the_compromised_releases_of_lightning_are_never_installed(bad: str) -> None:
    (lightning,) = (r for r in REQUIREMENTS if r.name == "pytorch-lightning")
    assert not lightning.specifier.contains(bad)
    assert lightning.specifier.contains(version(lightning.name))
    assert version(lightning.name) != bad


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda r: r.name)
def test_every_requirement_is_a_range_and_no_pin(requirement: Requirement) -> None:
    assert all(part.operator in (">=", "<", "!=") for part in requirement.specifier)
