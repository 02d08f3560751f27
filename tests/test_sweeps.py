"""Sweeps name settings and metrics that exist, and their points run as they are."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SWEEPS = sorted((ROOT / "configs/sweeps").glob("*.yaml"))


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def points(sweep: dict[str, Any]) -> list[list[str]]:
    """Return the arguments of each point of a grid, as wandb's agent writes them."""
    names = list(sweep["parameters"])
    grid = itertools.product(*(sweep["parameters"][name]["values"] for name in names))
    return [
        [f"--{name}={value}" for name, value in zip(names, values, strict=True)] for values in grid
    ]


def command(sweep: dict[str, Any], arguments: list[str]) -> list[str]:
    start, end = sweep["command"][:-1], sweep["command"][-1]
    assert end == "${args}"
    return [*start, *arguments]


def test_each_domain_has_a_sweep() -> None:
    assert [path.stem for path in SWEEPS] == ["image", "music", "translation"]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_its_first_and_last_point_are_parsed(path: Path) -> None:
    from triptych.cli.options import parser_of
    from triptych.config.schema import parse_settings
    from triptych.domains import find_domain

    sweep = read(path)
    words = sweep["command"][2].split()
    assert words[:5] == ["exec", "triptych", "train", path.stem, "--config"]
    config = ROOT / words[5]
    for arguments in (points(sweep)[0], points(sweep)[-1]):
        parse_settings(
            parser_of("train", find_domain(path.stem)), ["--config", str(config), *arguments]
        )


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_two_points_run(path: Path, tmp_path: Path) -> None:
    sweep = read(path)
    environment = {
        **os.environ,
        "WANDB_MODE": "offline",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    short = ["--trainer.max_steps=2", "--trainer.val_check_interval=2", "--run.log.samples=false"]
    short += [f"--run.directory={tmp_path}", "--trainer.limit_val_batches=1"]
    if path.stem == "translation":
        short += ["--data.validation_lines=2"]
    if (recipe := {"music": "motifs", "translation": "reversed"}.get(path.stem)) is not None:
        made = tmp_path / recipe
        make = [sys.executable, "-m", "triptych", "data", "make", recipe, "--out", str(made)]
        subprocess.run(make, env=environment, check=True, timeout=300)
        short += [f"--data.source.init_args.directory={made}"]
    for number, arguments in enumerate([points(sweep)[0], points(sweep)[-1]]):
        subprocess.run(
            command(sweep, [*arguments, *short]),
            cwd=ROOT,
            env={**environment, "WANDB_RUN_ID": f"point{number}"},
            check=True,
            timeout=300,
        )
        folder = tmp_path / f"sweeps/point{number}"
        header = (folder / "metrics.csv").read_text(encoding="utf-8").splitlines()[0]
        assert sweep["metric"]["name"] in header.split(",")
        settings = read(folder / "config.yaml")
        for argument in arguments:
            name, _, value = argument.removeprefix("--").partition("=")
            found: Any = settings
            for key in name.split("."):
                found = found[key]
            assert float(found) == float(value)
