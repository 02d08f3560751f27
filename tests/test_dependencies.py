"""What pyproject.toml asks for: ranges, and none of the releases that were compromised."""

from __future__ import annotations

import re
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


def test_every_extra_that_a_text_names_exists() -> None:
    root = Path(__file__).parents[1]
    places = [
        root / "README.md",
        *(root / "docs").rglob("*.md"),
        root / "scripts/docker/Dockerfile",
    ]
    named = {
        extra
        for place in (*places, *(root / "src").rglob("*.py"))
        for several in re.findall(r"(?:triptych|wheel\})\[([\w,-]+)\]", place.read_text("utf-8"))
        for extra in several.split(",")
    }
    assert {"serve", "export", "demo"} <= named <= set(PROJECT["optional-dependencies"])
