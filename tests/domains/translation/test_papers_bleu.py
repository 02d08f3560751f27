"""BLEU in the papers' convention: what is counted, and that nobody takes it for the other one."""

from __future__ import annotations

import gzip
import math
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from triptych.domains.translation.metrics import (
    moses_tokenize,
    papers_bleu,
    score_translations,
)

pytest.importorskip("sacremoses")

REFERENCES = [
    "Zwei Männer (mit Hüten) sitzen im „Café am See“.",
    "Ein Hund läuft über die Wiese, und die Kinder lachen!",
    "Das T-Shirt kostet 12,50 Euro.",
]
HYPOTHESES = [
    "Zwei männer mit Hüten sitzen in einem Café am See.",
    "Ein Hund rennt über die Wiese, und die Kinder lachen.",
    "Das T-Shirt kostet 12,50 Euro.",
]


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        ("de", "Er sagt: „Hallo“ (leise).", "er sagt : &quot; hallo &quot; ( leise ) ."),
        ("de", "Das T-Shirt kostet 12,50 Euro.", "das t-shirt kostet 12,50 euro ."),
        ("en", "The dog's ball isn't here…", "the dog &apos;s ball isn &apos;t here ..."),
        ("fr", "L'homme dit « oui »  !", "l&apos; homme dit &quot; oui &quot; !"),
        ("de", "A & B <c> [d]", "a &amp; b &lt; c &gt; &#91; d &#93;"),
        # The script's own way with a lonely apostrophe, which `perl_parity` keeps.
        ("en", "the ’90s", "the &quot; 90s"),
        # Lowercased first: afterwards no abbreviation is known, and its dot stands alone.
        ("de", "Zimmer Nr. 5", "zimmer nr . 5"),
        ("de-AT", "  Ja   ,  nein ", "ja , nein"),
    ],
)
def test_the_stages_by_hand(language: str, line: str, tokens: str) -> None:
    assert moses_tokenize([line], language) == [tokens]


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """BLEU-4 of tokens by its definition (Papineni et al. 2002), without smoothing."""
    log_precision, lengths = 0.0, [0, 0]
    pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    for n in (1, 2, 3, 4):
        right = every = 0
        for pair in pairs:
            ours, theirs = (
                Counter(tuple(side[i : i + n]) for i in range(len(side) - n + 1)) for side in pair
            )
            right, every = right + (ours & theirs).total(), every + ours.total()
        if not right:
            return 0.0
        log_precision += math.log(right / every) / 4
    lengths = [sum(len(pair[side]) for pair in pairs) for side in (0, 1)]
    return 100 * math.exp(log_precision + min(0.0, 1 - lengths[1] / lengths[0]))


@pytest.mark.parametrize("cut", [None, 30])
def test_it_is_multi_bleu_of_the_tokens(cut: int | None) -> None:
    hypotheses = [line[:cut] for line in HYPOTHESES]
    score, _ = papers_bleu(hypotheses, REFERENCES, "de")
    sides = (moses_tokenize(lines, "de") for lines in (hypotheses, REFERENCES))
    assert score == pytest.approx(multi_bleu(*sides), abs=1e-6)
    assert 20 < score < 90


def test_no_smoothing_and_no_case() -> None:
    # Three words in a row are right, four never: smoothing would give something.
    assert papers_bleu(["ein Hund bellt da laut"], ["ein Hund bellt laut"], "de")[0] == 0.0
    shouted = [line.upper().replace("ẞ", "SS") for line in REFERENCES]
    scores, _ = score_translations(shouted, REFERENCES, tokenizer="13a", papers_language="de")
    assert scores["bleu_papers"] == pytest.approx(100.0)
    assert scores["bleu"] < 30


def test_the_two_kinds_of_bleu_cannot_be_confused() -> None:
    scores, details = score_translations(
        HYPOTHESES, REFERENCES, tokenizer="13a", papers_language="de"
    )
    without, _ = score_translations(HYPOTHESES, REFERENCES, tokenizer="13a")
    assert list(scores) == ["bleu", "bleu_papers", "chrf", "exact_match"]
    assert scores["bleu"] == without["bleu"] != scores["bleu_papers"]
    assert list(without) == ["bleu", "chrf", "exact_match"]
    assert details["labels"].keys() == details["signatures"].keys()
    assert "not_scored" not in details
    assert "not to be compared" in details["labels"]["bleu_papers"]
    assert "case:mixed" in details["signatures"]["bleu"]
    stages = details["signatures"]["bleu_papers"]
    parts = ["lowercase:python", "normalise:sacremoses[de,perl_parity]"]
    parts += ["tokenise:sacremoses[de,escape]", f"sacremoses:{version('sacremoses')}"]
    parts += ["case:lc", "tok:none", "smooth:none", f"version:{version('sacrebleu')}"]
    assert [stages.index(part) for part in parts] == sorted(stages.index(part) for part in parts)


@pytest.mark.parametrize("language", ["de", "en", "fr", "DE", "pt-BR", "en_GB"])
def test_languages_that_moses_cuts_into_words(language: str) -> None:
    assert papers_bleu(["a"], ["a"], language)


@pytest.mark.parametrize("language", ["ko", "zh-CN", "ja", "yue", "xx"])
def test_other_languages_have_a_reason(language: str) -> None:
    reason = f"Moses has no tokenisation into words for the language {language}"
    scores, details = score_translations(["a"], ["a"], tokenizer="13a", papers_language=language)
    assert "bleu_papers" not in scores
    assert details["not_scored"] == {"bleu_papers": reason}
    assert details["signatures"].keys() == {"bleu", "chrf"}


def test_what_is_scored_by_character_has_no_papers_bleu() -> None:
    scores, details = score_translations(["zwei"], ["zwei"], tokenizer="char", papers_language="de")
    assert "scored by character" in details["not_scored"]["bleu_papers"]
    assert "bleu_papers" not in scores


def test_without_sacremoses_all_else_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sacremoses", "sacremoses.corpus"):
        monkeypatch.setitem(sys.modules, name, None)
    scores, details = score_translations(
        HYPOTHESES, REFERENCES, tokenizer="13a", papers_language="de"
    )
    assert scores["bleu"] > 0
    assert "the extra `moses`" in details["not_scored"]["bleu_papers"]


def test_the_references_have_as_many_tokens_as_the_papers_count(shared_data: Path) -> None:
    """Wu et al.'s published log line ends in `reflen=12103`: the German side of test2016."""
    path = shared_data / "multi30k/test_2016_flickr.de.gz"
    lines = gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]
    assert sum(len(line.split()) for line in moses_tokenize(lines, "de")) == 12_103
