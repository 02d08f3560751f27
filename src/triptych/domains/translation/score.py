"""How good translations are: corpus BLEU and chrF by sacrebleu (Post 2018, arXiv 1804.08771).

Always on raw text as the reader sees it: true case, no tokenisation of our own. The signature
goes with every figure, because two BLEU scores with two signatures cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BY_CHARACTER = ("ko", "zh", "ja")
"""Target languages whose BLEU counts characters: sacrebleu's default tokeniser is made for
languages with blanks between words, and a Korean word carries its particles."""


@dataclass(frozen=True)
class Scores:
    """Corpus scores of some translations."""

    bleu: float
    """Corpus BLEU, 0 to 100."""
    chrf: float
    """Corpus chrF2, 0 to 100."""
    exact_match: float
    """Share of lines that equal their reference, 0 to 1."""
    signatures: dict[str, str]
    """sacrebleu's signatures of bleu and chrf."""

    def metrics(self) -> dict[str, float]:
        """The three figures by name."""
        return {"bleu": self.bleu, "chrf": self.chrf, "exact_match": self.exact_match}


def bleu_tokenizer(language: str) -> str:
    """The sacrebleu tokeniser for a target language code such as de, ko or zh-CN."""
    return "char" if language.lower().replace("_", "-").split("-")[0] in BY_CHARACTER else "13a"


def score_translations(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenizer: str
) -> Scores:
    """Score translations against one reference each.

    tokenizer: sacrebleu's, for BLEU: see `bleu_tokenizer`. Raises ValueError where the counts
    differ or there is nothing to score: a line that went missing would shift every line behind it.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses):,} translations cannot be scored against {len(references):,} "
            "references: line n belongs to line n."
        )
    if not references:
        raise ValueError("there are no translations to score.")
    # Not lowercased; effective_order is for single sentences and not for a corpus.
    bleu = BLEU(tokenize=tokenizer)
    chrf = CHRF()
    bleu_score = bleu.corpus_score(hypotheses, [references]).score
    chrf_score = chrf.corpus_score(hypotheses, [references]).score
    matches = sum(
        hypothesis == reference
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return Scores(
        bleu=float(bleu_score),
        chrf=float(chrf_score),
        exact_match=matches / len(references),
        signatures={
            "bleu": str(bleu.get_signature()),
            "chrf": str(chrf.get_signature()),
        },
    )
