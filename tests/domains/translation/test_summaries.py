"""Scores of corpora whose targets are no translations: ROUGE, characters."""

from __future__ import annotations

import pytest

from triptych.domains.translation.metrics import (
    ROUGE,
    character_accuracy,
    rouge,
    score_translations,
)
from triptych.domains.translation.sources import ParallelText


def test_rouge_is_that_of_its_definition() -> None:
    """One of three words in common, no pair of words: F1 = 2 (1/3)(1/3) / (2/3) = 1/3."""
    found = rouge(["returns one leaf"], ["a small leaf"])
    assert found == pytest.approx({"rouge1": 100 / 3, "rouge2": 0.0, "rougeL": 100 / 3}, abs=1e-4)
    found = rouge(["the tree has leaves"], ["the leaves has tree"])  # subsequence of 2 of 4 words
    assert found == pytest.approx({"rouge1": 100, "rouge2": 0, "rougeL": 50}, abs=1e-4)


def test_the_targets_decide_what_is_scored() -> None:
    scores = {
        targets: set(score_translations(["a"], ["a"], tokenizer="13a", targets=targets)[0])
        for targets in ("translations", "summaries", "symbols")
    }
    plain = scores["translations"]
    assert scores["summaries"] - plain == set(ROUGE)
    assert scores["symbols"] - plain == {"character_accuracy"}


def test_symbols_are_compared_character_by_character() -> None:
    corpus = ParallelText(targets="symbols")
    score = character_accuracy(["1234", "12", "", "99"], ["1235", "1234", "7", "9"])
    assert score == (3 + 2 + 0 + 1) / 10
    assert corpus.bleu_tokenizer() == "char"
