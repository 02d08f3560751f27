"""Scores of summaries: ROUGE, and baselines that copy a sentence of the document."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
ROUGE = ("rouge1", "rouge2", "rougeL")
"""Overlap of words, of pairs of words, and longest common subsequence (Lin 2004)."""


def rouge(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the mean F1 of each kind of ROUGE, 0 to 100, by torchmetrics, without stemming."""
    from torchmetrics.functional.text.rouge import rouge_score

    scores = rouge_score(list(hypotheses), list(references), rouge_keys=ROUGE)
    return {name: 100 * float(scores[f"{name}_fmeasure"]) for name in ROUGE}


def rouge_of_baselines(
    documents: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return `rouge` of the first sentence of each document, and of a random one."""
    sentences = [SENTENCE_END.split(document) for document in documents]
    generator = random.Random(0)
    baselines = {
        "lead-1": [first for first, *_ in sentences],
        "random sentence": [generator.choice(each) for each in sentences],
    }
    return {name: rouge(chosen, references) for name, chosen in baselines.items()}
