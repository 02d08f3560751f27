"""Scores of a translation model on a split: likelihood, BLEU, chrF, exact match, ROUGE."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.decoding.penalty import LengthPenalty
from triptych.domains.sources import known_entropy, source_to_score
from triptych.domains.translation.data import EncodedPairs, evaluation_batches
from triptych.domains.translation.metrics import score_translations
from triptych.training.evaluate import Evaluation, sum_scores
from triptych.types import Progress

if TYPE_CHECKING:
    from triptych.domains.translation.inference import TranslationModel

MAX_SCORING_TOKENS = 4_096
"""Maximum number of tokens to score at a time: a training batch for a large GPU may not fit."""
SAMPLE_ROWS = 20
"""Number of lines of a split in the details of an evaluation."""


def evaluate_split(
    model: TranslationModel,
    split: str,
    *,
    data: str | Path | None,
    batch_size: int,
    limit: int | None,
    beam: int,
    length_penalty: str,
    no_repeat_ngram: int | None,
    frequent_words: int | None,
    progress: Progress | None,
) -> Evaluation:
    """Return the scores of a split; the arguments are those of `TranslationModel.evaluate`."""
    penalty = LengthPenalty.parse(length_penalty)
    trained_on = model.data_settings
    corpus = source_to_score(trained_on.source, split, data)
    pairs = corpus.pairs(split)[:limit]
    max_tokens = min(MAX_SCORING_TOKENS, trained_on.max_tokens)
    totals = sum_scores(
        model.model,
        model.score,
        evaluation_batches(EncodedPairs.of(pairs, model.vocabulary), max_tokens),
    )
    sources = [source for source, _ in pairs]
    references = [target for _, target in pairs]
    started = time.perf_counter()
    found = model.search(
        sources,
        beam=beam,
        length_penalty=length_penalty,
        no_repeat_ngram=no_repeat_ngram,
        frequent_words=frequent_words,
        batch_size=batch_size,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    translations = [best[0] for best in model.texts(found)]
    scores = score_translations(
        translations,
        references,
        tokenizer=corpus.bleu_tokenizer(),
        papers_language=corpus.target_language,
    )
    samples = zip(sources, references, translations, strict=True)
    details: dict[str, Any] = {
        **scores.details,
        "search": {
            "beam": beam,
            "length_penalty": str(penalty),
            "no_repeat_ngram": no_repeat_ngram,
            "frequent_words": frequent_words,
        },
        "dtype": model.dtype,
        "sentences_per_second": len(pairs) / seconds,
        "vocabulary": {
            "source": len(model.vocabulary.source),
            "target": len(model.vocabulary.target),
        },
        "tokens": int(totals["tokens"]),
        **known_entropy(corpus),
        "samples": [
            {"source": source, "reference": reference, "translation": translation}
            for source, reference, translation in list(samples)[:SAMPLE_ROWS]
        ],
        "hypotheses": translations,
        "baselines": corpus.baseline_scores(sources, references),
    }
    extra = corpus.extra_scores(translations, references)
    found_metrics = {**model.metrics(totals), **scores.metrics, **extra}
    return Evaluation(model.domain, split, found_metrics, int(totals["pairs"]), details)
