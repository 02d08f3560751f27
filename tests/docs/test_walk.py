"""The walk of a Korean sentence: the numbers on its page are those of the shipped model."""

from __future__ import annotations

import re

import pytest
from site_hooks import DOCS

import triptych
from triptych.tools.explain.figure import ExplainOptions, find_figure

PAGE = DOCS / "learn/walk.md"


def words_of(line: str) -> list[str | float]:
    number = re.compile(r"-?\d+\.\d+|-inf")
    return [float(word) if number.fullmatch(word) else word for word in line.split()]


@pytest.mark.slow
def test_the_numbers_of_the_walk_are_those_of_the_model() -> None:
    model = triptych.load("pretrained:ko-zh-en", device="cpu")
    printed = find_figure("sentence").draw(ExplainOptions(name="sentence"), model).decode()
    lines = [words_of(line) for line in printed.splitlines()]
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    shown = [words_of(line) for block in blocks for line in block.splitlines() if line]
    assert len(shown) > 60
    for words in shown:
        near = [
            pytest.approx(word, abs=2e-3) if isinstance(word, float) else word for word in words
        ]
        assert near in lines
