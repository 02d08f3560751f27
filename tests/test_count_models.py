"""`scripts/count_models`: each split's figures, for every kind of data."""

from __future__ import annotations

import json
import math
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych.domains.image.synthetic import CopiedRows

ROOT = Path(__file__).parents[1]
SPLITS = ["train", "validation", "test"]

Count = Callable[..., int]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Call the script in this process with its arguments."""

    def call(*arguments: Any) -> int:
        monkeypatch.setattr(sys, "argv", ["count_models", *map(str, arguments)])
        return int(runpy.run_path(str(ROOT / "scripts/count_models"))["main"]())

    return call


def test_each_split_is_printed_and_written(
    count: Count, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "counts.json"
    config = ROOT / "configs/image/copied-rows.yaml"
    small = ["--data.source.levels", 3, "--data.source.train", 50, "--data.source.test", 9]
    assert count("image", "--config", config, "--json", file, *small) == 0
    figures = json.loads(file.read_text())
    assert figures["unit"] == "bits per dim"
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == SPLITS
    for line in lines[2:]:
        name = " ".join(line.split()[:-3])
        assert line.split()[-3:] == [f"{figures[split][name]:.3f}" for split in SPLITS]
    assert len(lines) == 5, "uniform, histogram, and the law of a source that knows it"
    assert figures["train"]["uniform"] == pytest.approx(1.58496, abs=1e-5)
    assert figures["train"]["histogram per place"] < figures["test"]["histogram per place"]
    source = CopiedRows(levels=3, train=50, test=9)
    law = source.nll("test") / math.log(2) / (9 * 64)
    assert figures["test"]["the law itself"] == pytest.approx(law)


@pytest.mark.parametrize(
    ("domain", "name"), [("music", "copied-motifs"), ("translation", "reversed")]
)
def test_other_kinds_of_data(
    count: Count, domain: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ROOT / f"configs/{domain}/{name}.yaml"
    assert count(domain, "--config", config, "--data.source.train", 300) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "nats per token" in lines[0]
    assert lines[1].split() == SPLITS
    test = [float(line.split()[-1]) for line in lines[2:]]
    assert min(test) == test[-1], "none is better than the law"
    assert max(test) == test[0], "none is worse than the uniform one"


def test_a_mistake_is_one_sentence(count: Count, capsys: pytest.CaptureFixture[str]) -> None:
    assert count("image", "--config", "nowhere.yaml") == 2
    said = capsys.readouterr().err
    assert said.startswith("count_models: ")
    assert "nowhere.yaml" in said
    assert said.count("\n") == 1


def test_the_known_figures_of_the_chorales(
    count: Count, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert count("music", "--data.source.directory", shared_data / "jsb-chorales") == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[-2] for line in lines] == ["3.850", "0.938", "0.729"]
