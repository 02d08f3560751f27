"""How good translations are: corpus BLEU and chrF by sacrebleu (Post 2018, arXiv 1804.08771).

Always on raw text as the reader sees it: true case, no tokenisation of our own. The one exception
has a name of its own, `bleu_papers`, and stands beside. The signature goes with every figure,
because two BLEU scores with two signatures cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from triptych.domains.translation.papers_bleu import main_language, papers_bleu, why_not

BY_CHARACTER = ("ko", "zh", "ja")
"""Target languages whose BLEU counts characters: sacrebleu's default tokeniser is made for
languages with blanks between words, and a Korean word carries its particles."""
LABELS = {
    "bleu": "BLEU of raw text, true case, by sacrebleu",
    "chrf": "chrF2 of raw text, true case, by sacrebleu",
    "bleu_papers": "BLEU-4 of lowercased, punctuation-normalised, Moses-tokenised text, as papers "
    "on Multi30k report it; mostly above bleu and not to be compared with it",
}
"""What each score is, for a person."""


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
    """How bleu and chrf, and bleu_papers where it is there, were counted."""
    bleu_papers: float | None = None
    """Corpus BLEU in the papers' convention, 0 to 100; None where it was not computed."""
    not_scored: dict[str, str] = field(default_factory=dict)
    """Why a score that was asked for is not there, by its name."""

    def metrics(self) -> dict[str, float]:
        """The figures by name."""
        papers = {} if self.bleu_papers is None else {"bleu_papers": self.bleu_papers}
        return {"bleu": self.bleu, **papers, "chrf": self.chrf, "exact_match": self.exact_match}

    def details(self) -> dict[str, dict[str, str]]:
        """What stands beside the figures: label and signature of each, and why one is missing."""
        labels = {name: LABELS[name] for name in self.signatures}
        missing = {"not_scored": self.not_scored} if self.not_scored else {}
        return {"labels": labels, "signatures": self.signatures, **missing}


def bleu_tokenizer(language: str) -> str:
    """The sacrebleu tokeniser for a target language code such as de, ko or zh-CN."""
    return "char" if main_language(language) in BY_CHARACTER else "13a"


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenizer: str,
    papers_language: str | None = None,
) -> Scores:
    """Score translations against one reference each.

    tokenizer: sacrebleu's, for BLEU: see `bleu_tokenizer`. papers_language: the target language
    code, where the papers' BLEU is asked for too; None for not. Raises ValueError where the counts
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
    signatures = {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
    papers, not_scored = None, {}
    if papers_language is not None:
        by_character = "these translations are scored by character, which is not how papers count"
        why = by_character if tokenizer == "char" else why_not(papers_language)
        if why is None:
            papers, signatures["bleu_papers"] = papers_bleu(hypotheses, references, papers_language)
        else:
            not_scored["bleu_papers"] = why
    return Scores(
        bleu=float(bleu_score),
        chrf=float(chrf_score),
        exact_match=matches / len(references),
        signatures=signatures,
        bleu_papers=papers,
        not_scored=not_scored,
    )
