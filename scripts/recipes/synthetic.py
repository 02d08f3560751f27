"""Sentence pairs made by translation models: back-translation, self-training, diversification.

Models of the direction of a config (`forward`) translate text of its source language, models of the
opposite direction (`backward`) text of its target language. Monolingual target text gives
back-translation (Sennrich et al. 2016, arXiv 1511.06709), the training pairs and several models of
both directions give data diversification (Nguyen et al. 2020, arXiv 1911.01986).

Writes pairs.tsv with the columns `source` and `target`, for data.additional_pairs, and left_out.tsv
with the numbers of texts and pairs that were left out, by reason. No sentence of a split other than
training is in a pair, compared in lower case without punctuation. The licences of the texts apply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, cast

import triptych
from triptych.domains.base import Translation
from triptych.domains.options import SamplingOptions
from triptych.domains.translation.domain import SearchOptions, TranslationRequest
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.lines import primary_subtag
from triptych.domains.translation.sources import Corpus, Pair
from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.files.progress import display
from triptych.text.tables import SPACES
from triptych.types import PositiveInt

from ._pairs import HEADER, corpus_of, fault, held_out_keys, key, report

BATCHES_PER_PART = 16
"""Batches that are translated before their pairs are written."""


@dataclass(frozen=True, kw_only=True)
class Options(SamplingOptions, SearchOptions):
    """Models, texts, search or sampling, and which pairs are kept."""

    config: str = "multi30k-en-de"
    """Settings file, or name of a shipped one, whose data.source has the training pairs and the
    splits that no pair may touch."""
    directory: str | None = None
    """Folder of the source's files; null for the one of the config."""
    forward: tuple[str, ...] = ()
    """Checkpoints that translate in the direction of the config."""
    backward: tuple[str, ...] = ()
    """Checkpoints that translate in the opposite direction."""
    sources: tuple[str, ...] = ()
    """Text files for `forward`, one sentence a line, .gz or not; none for the training sources."""
    targets: tuple[str, ...] = ()
    """Text files for `backward`; none for the training targets."""
    lines: str | None = None
    """FROM-TO, from 1: which of the different texts to translate, for a work in parts; null for
    all."""
    exclude: tuple[str, ...] = ()
    """More text files of which no sentence may be in a pair."""
    tag: str = ""
    """Text before each source that `backward` wrote (Caswell et al. 2019, arXiv 1906.06442)."""
    sample: bool = False
    """Sample, by seed, temperature, top_k and top_p (Edunov et al. 2018, arXiv 1808.09381)."""
    batch_size: PositiveInt = 128
    """Lines translated at a time."""
    min_score: float | None = None
    """Least score of a translation, its log-probability over the length penalty; null for any."""
    max_ratio: float = 3.0
    """Largest ratio of the lengths of both sides in bytes of UTF-8, which compare scripts better
    than characters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.forward and not self.backward:
            raise ValueError("forward and backward are empty; expected a checkpoint")
        if self.sample and self.min_score is not None:
            raise ValueError("min_score belongs to beam search; expected it without sample")
        span(self.lines)


def main(options: Options) -> Iterator[tuple[str, Iterable[Pair]]]:
    """Yield the files; raises UserError for a model of another direction."""
    corpus, left_out = corpus_of(options.config, options.directory), Counter[str]()
    held_out = held_out_keys(corpus, options.exclude)
    work = []
    for backward, names, files in (
        (False, options.forward, options.sources),
        (True, options.backward, options.targets),
    ):
        models = [_open(name, corpus, backward) for name in names]
        if models:
            texts = [line for file in files for line in read_lines(Path(file))]
            if not files:
                texts = [pair[backward] for pair in corpus.items("train")]
            chosen = different(texts, held_out, left_out)[span(options.lines)]
            work += [(model, backward, chosen) for model in models]
    real = set(corpus.items("train"))
    pairs = kept(translated(work, options), held_out, real, left_out, options)
    yield "pairs.tsv", chain([HEADER], pairs)
    yield "left_out.tsv", report(left_out)


def span(lines: str | None) -> slice:
    """Return FROM-TO, counted from 1 with both ends, as a slice; ValueError for other text."""
    if lines is None:
        return slice(None)
    first, _, last = lines.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ValueError(f"lines is {lines!r}; expected FROM-TO such as 1-20000")
    return slice(int(first) - 1, int(last))


def _open(name: str, corpus: Corpus, backward: bool) -> TranslationModel:
    model = cast(TranslationModel, triptych.load(name, domain="translation"))
    language = primary_subtag(model.settings.target_language)
    expected = (corpus.source_language if backward else corpus.target_language).split("+")
    if language not in map(primary_subtag, expected):
        option = "backward" if backward else "forward"
        raise UserError(
            f"{name} translates into {language}; expected a model into {' or '.join(expected)} "
            f"as {option}"
        )
    return model


def different(texts: Iterable[str], held_out: set[str], left_out: Counter[str]) -> list[str]:
    """Return the stripped texts, each once and in order, without those that are held out."""
    chosen: dict[str, None] = {}
    for text in (text.strip(SPACES).replace("\t", " ") for text in texts):
        if not key(text):
            left_out["texts without a letter"] += 1
        elif text in chosen:
            left_out["repeated texts"] += 1
        elif key(text) in held_out:
            left_out["texts that are held out"] += 1
        else:
            chosen[text] = None
    return list(chosen)


def translated(
    work: list[tuple[TranslationModel, bool, list[str]]], options: Options
) -> Iterator[tuple[bool, str, Translation]]:
    """Yield whether the model is of the opposite direction, the text and its translation."""
    shared = {field.name for field in fields(TranslationRequest)} & {*vars(options)}
    search = {name: getattr(options, name) for name in shared}
    size, done = options.batch_size * BATCHES_PER_PART, 0
    progress, total = display("translated lines"), sum(len(texts) for *_, texts in work)
    for model, backward, texts in work:
        for first in range(0, len(texts), size):
            part = texts[first : first + size]
            found: Any = model.translate(part, scores=not options.sample, **search)
            for text, best in zip(part, found, strict=True):
                one = Translation(best, 0.0, 0.0) if isinstance(best, str) else best[0]
                yield backward, text, one
            done += len(part)
            progress(done, total)


def kept(
    translations: Iterable[tuple[bool, str, Translation]],
    held_out: set[str],
    real: Iterable[Pair],
    left_out: Counter[str],
    options: Options,
) -> Iterator[Pair]:
    """Yield the pairs that pass the filters, each once and none of the real ones."""
    seen = {*real}
    for backward, text, (translation, score, _) in translations:
        translation = translation.strip(SPACES).replace("\t", " ")
        pair = (translation, text) if backward else (text, translation)
        if options.min_score is not None and score < options.min_score:
            left_out["translations with a low score"] += 1
        elif reason := fault(*pair, held_out, options.max_ratio):
            left_out[reason] += 1
        elif pair in seen:
            left_out["repeated pairs"] += 1
        else:
            seen.add(pair)
            source, target = pair
            yield f"{options.tag} {source}" if backward and options.tag else source, target
