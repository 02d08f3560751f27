"""Scores of a translation model on a split: likelihood, BLEU, chrF, exact match, ROUGE."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from triptych.decoding.penalty import LengthPenalty
from triptych.domains.options import TranslateOptions
from triptych.domains.synthetic import known_entropy
from triptych.domains.translation.data import EncodedPairs
from triptych.domains.translation.domain import TranslationScoreRequest
from triptych.domains.translation.metrics import score_translations
from triptych.files.splits import source_to_score
from triptych.text.batches import evaluation_batches
from triptych.training.engine.evaluate import Evaluation, sum_scores
from triptych.types import Progress

if TYPE_CHECKING:
    from triptych.domains.translation.inference import TranslationModel

MAX_SCORING_TOKENS = 4_096
"""Maximum number of tokens to score at a time: a training batch for a large GPU may not fit."""
SAMPLE_ROWS = 20
"""Number of lines of a split in the details of an evaluation."""


def evaluate_split(
    model: TranslationModel, request: TranslationScoreRequest, progress: Progress | None
) -> Evaluation:
    """Return the scores of a split; see `TranslationModel.score_split`."""
    penalty, split = LengthPenalty.parse(request.length_penalty), request.split
    trained_on = model.data_settings
    corpus = source_to_score(trained_on.source, split, request.data)
    pairs = corpus.pairs(split)[: request.limit]
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
        beam=request.beam,
        length_penalty=request.length_penalty,
        no_repeat_ngram=request.no_repeat_ngram,
        batch_size=request.batch_size or TranslateOptions.batch_size,
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
            "beam": request.beam,
            "length_penalty": str(penalty),
            "no_repeat_ngram": request.no_repeat_ngram,
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
