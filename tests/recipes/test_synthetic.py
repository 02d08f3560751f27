"""Synthetic pairs: against a loop from the definition, with models that follow a rule."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import triptych
from triptych.config.schema import to_plain
from triptych.domains.base import Translation
from triptych.domains.translation.sources import ParallelText
from triptych.errors import UserError
from triptych.tools import recipes

synthetic = recipes.load("synthetic")


class Model:
    """Translates by a rule; the score is minus the number of words."""

    def __init__(self, language: str, mark: str) -> None:
        self.settings = SimpleNamespace(target_language=language)
        self.mark = mark

    def rule(self, text: str) -> str:
        special = {"copied": "Copied!", "long": "x" * 99, "silent": "", "near": "held one"}
        return special.get(text, f"{self.mark} {text[::-1]}")

    def translate(self, lines: list[str], *, scores: bool, **options: Any) -> list[Any]:
        texts = [self.rule(line) for line in lines]
        return [[Translation(t, -len(t.split()), 0.0)] if scores else t for t in texts]


MODELS = {"a": Model("de", "A"), "b": Model("de", "B"), "c": Model("en", "C")}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for split, sides in {
        "train": {"en": ["one", "two", "one", "Val 1"], "de": ["1", "2", "1", "3"]},
        "val": {"en": ["val 1", "held one"], "de": ["Wert 1.", "gehalten"]},
    }.items():
        for language, lines in sides.items():
            (tmp_path / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    files = {"train": ["train.{language}"], "validation": ["val.{language}"]}
    source = ParallelText(directory=str(tmp_path), files=files)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"data": {"source": to_plain(source)}}))
    monkeypatch.setattr(triptych, "load", lambda name, domain: MODELS[name])
    return {"config": str(config), "batch_size": 1}


def made(**options: Any) -> tuple[list[tuple[str, str]], dict[str, str]]:
    files = {name: list(rows) for name, rows in synthetic.main(synthetic.Options(**options))}
    assert files["pairs.tsv"][0] == ("source", "target")
    return files["pairs.tsv"][1:], dict(files["left_out.tsv"])


def test_diversification_translates_the_training_side_by_every_model(options: Any) -> None:
    expected = []
    for name, sentences in (("a", ["one", "two"]), ("b", ["one", "two"]), ("c", ["1", "2", "3"])):
        for text in sentences:  # each once, and none of another split
            pair = (text, MODELS[name].rule(text))
            expected.append(pair if name != "c" else pair[::-1])
    pairs, left_out = made(**options, forward=("a", "b"), backward=("c",))
    assert pairs == expected
    assert left_out == {"repeated texts": "2", "texts that are held out": "1"}


def test_back_translation_filters_and_tags(options: Any, tmp_path: Path) -> None:
    mono = ["wert, 1", "gut", "copied", "long", "silent", "near", "secret!", "gut ", "...", "drei"]
    (tmp_path / "mono.de").write_text("\n".join(mono) + "\n")
    (tmp_path / "more.txt").write_text("Secret\n")
    files = {"targets": (str(tmp_path / "mono.de"),), "exclude": (str(tmp_path / "more.txt"),)}
    pairs, left_out = made(**options, **files, backward=("c",), tag="~")
    assert pairs == [("~ C tug", "gut"), ("~ C ierd", "drei")]
    assert left_out == {
        "texts that are held out": "2",
        "texts without a letter": "1",
        "repeated texts": "1",
        "pairs of equal sides": "1",
        "pairs of unequal lengths": "1",
        "pairs with a side without a letter": "1",
        "pairs that are held out": "1",
    }
    low = made(**options, **files, backward=("c",), min_score=-1.5)
    assert low[0] == []
    assert low[1]["translations with a low score"] == "3"
    sampled = made(**options, **files, backward=("c",), sample=True)
    assert [target for _, target in sampled[0]] == ["gut", "drei"]


def test_parts_are_the_whole(options: Any, tmp_path: Path) -> None:
    (tmp_path / "mono.de").write_text("\n".join(f"satz {n % 30}" for n in range(50)) + "\n")
    options |= {"targets": (str(tmp_path / "mono.de"),), "backward": ("c",)}
    whole, _ = made(**options)
    parts = [made(**options, lines=lines)[0] for lines in ("1-7", "8-21", "22-99")]
    assert [*parts[0], *parts[1], *parts[2]] == whole
    assert [len(part) for part in parts] == [7, 14, 9]


def test_what_does_not_fit_is_refused(options: Any) -> None:
    with pytest.raises(UserError, match="translates into en"):
        made(**options, forward=("c",))
    for wrong in ("5", "3-2", "0-4", "a-b"):
        with pytest.raises(ValueError, match="FROM-TO"):
            made(**options, forward=("a",), lines=wrong)
    with pytest.raises(ValueError, match="checkpoint"):
        made(**options)
