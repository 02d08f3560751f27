"""Scores are sacrebleu's, on raw text, with their signatures."""

from __future__ import annotations

import pytest
import sacrebleu
from dataclass_rules import changeable_dataclasses, names_of_many_defaults, positional_options

from triptych.domains.translation.metrics import score_translations
from triptych.domains.translation.sources import ParallelText

REFERENCES = ["The cat sat on the mat.", "It is raining again today.", "Where is the old bridge?"]
HYPOTHESES = ["The cat sat on a mat.", "It is raining again today.", "Where is the new bridge?"]


def test_figures_are_those_of_sacrebleu_with_its_defaults() -> None:
    scores, _ = score_translations(HYPOTHESES, REFERENCES, tokenizer="13a")
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert scores["exact_match"] == pytest.approx(1 / 3)
    assert scores.keys() == {"bleu", "chrf", "exact_match"}


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"),
        ("zh-CN", "char"),
        ("KO", "char"),
        ("th", "char"),
        ("my", "char"),
        ("km", "char"),
    ],
)
def test_languages_without_spaces_are_scored_by_character(language: str, tokenizer: str) -> None:
    assert ParallelText(target_language=language).bleu_tokenizer() == tokenizer
    _, details = score_translations(["저는 학생입니다."], ["저는 학생이에요."], tokenizer=tokenizer)
    signatures = details["signatures"]
    assert f"tok:{tokenizer}" in signatures["bleu"]
    assert "case:mixed" in signatures["bleu"]
    assert "chrF2" in signatures["chrf"] or "nc:6" in signatures["chrf"]


def test_a_missing_line_is_an_error_and_not_a_shift() -> None:
    for lines in (HYPOTHESES[:2], [*HYPOTHESES, ""]):
        with pytest.raises(ValueError, match="zip"):
            score_translations(lines, REFERENCES, tokenizer="13a")


def test_empty_translations_count_as_lines() -> None:
    scores, _ = score_translations(["", *REFERENCES[1:]], REFERENCES, tokenizer="13a")
    assert scores["exact_match"] == pytest.approx(2 / 3)
    assert scores["bleu"] < 100


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.domains.translation")
    assert not positional_options("triptych.domains.translation")
    found = names_of_many_defaults("triptych.domains.translation")
    assert found == {"directory", "tokenizer"}
