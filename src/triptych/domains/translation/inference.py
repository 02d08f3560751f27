"""A trained translation model in use: translate, evaluate."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, overload

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.decoding.hypotheses import Hypothesis, LengthPenalty
from triptych.decoding.quantize import Dtype, quantize
from triptych.domains.translation import task as tasks
from triptych.domains.translation.corpora import check_folder
from triptych.domains.translation.data import EncodedPairs, read_split
from triptych.domains.translation.decode import search_lines, texts
from triptych.domains.translation.score import score_translations
from triptych.errors import UserError
from triptych.training.devices import device_named
from triptych.training.evaluate import Evaluation, Progress, evaluate, reading_from
from triptych.training.known_law import beside
from triptych.training.weights import around, check_dtype

AT_ONCE = 64
"""Lines translated at a time where nobody says otherwise."""
MOST_SCORED = 4_096
"""Most tokens scored at a time: a training batch for a large GPU would fill a laptop."""
SAMPLE_ROWS = 20
"""Lines of a split that an evaluation shows."""


class Translator:
    """A translation model out of a checkpoint.

    dtype: fp32, bf16 or int8, as in `decoding.quantize`.
    exact: give every line the text that a search in double precision gives. Rounding depends on
    the shape of a batch, and in single precision it can turn a near-tie between two hypotheses, so
    that a line would read otherwise in another batch. The few lines that come so close are
    searched again in double precision (`decode.SAFE_MARGIN`). It is for fp32 alone, and MPS, which
    has no double precision, goes without. Raises UserError for an impossible dtype.
    """

    def __init__(
        self, task: tasks.TranslationTask, *, dtype: Dtype = "fp32", exact: bool = True
    ) -> None:
        check_dtype(dtype, task.device)
        self.task = task.eval()
        self.dtype = dtype
        self.exact = exact and dtype == "fp32" and task.device.type != "mps"
        self.tokens_written = 0
        """Tokens of all best translations so far, their ends included."""

    def with_dtype(self, dtype: Dtype) -> Translator:
        """The same model, searching and scoring in another precision."""
        return Translator(self.task, dtype=dtype)

    @cached_property
    def double(self) -> EncoderDecoder:
        """The model in double precision, for what single precision cannot decide."""
        return copy.deepcopy(self.task.model).double()

    @cached_property
    def model(self) -> EncoderDecoder:
        """The model that searches and scores."""
        return cast(EncoderDecoder, quantize(self.task.model, self.dtype))

    @property
    def config(self) -> tasks.Config:
        """All settings of the run that made it."""
        return self.task.config

    @overload
    def translate(
        self, lines: Sequence[str], *, n_best: Literal[1] = 1, **options: Any
    ) -> list[str]: ...

    @overload
    def translate(
        self, lines: Sequence[str], *, n_best: int, **options: Any
    ) -> list[list[str]]: ...

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int = 4,
        n_best: int = 1,
        batch_size: int = AT_ONCE,
        length_penalty: str = "gnmt:0.6",
        progress: Progress | None = None,
    ) -> list[str] | list[list[str]]:
        """One translation for each line; for n_best above 1 a list of n_best, best first.

        beam: hypotheses kept, 1 for greedy. batch_size: lines at a time, which changes no text
        where the search is exact.
        length_penalty: as `decoding.hypotheses.LengthPenalty.parse` reads it. A blank line gives an
        empty one without a run of the model; no translation has a line end in it, or is longer than
        its source by more than 50 tokens. Raises UserError for impossible values.
        """
        found = self._search(
            lines,
            beam=beam,
            n_best=n_best,
            batch_size=batch_size,
            length_penalty=length_penalty,
            progress=progress,
        )
        self.tokens_written += sum(len(best[0].tokens) + 1 for best in found if best)
        written = texts(self.task.tokenizers, found, n_best=n_best)
        return [best[0] for best in written] if n_best == 1 else written

    def _search(
        self,
        lines: Sequence[str],
        *,
        beam: int = 4,
        n_best: int = 1,
        batch_size: int = AT_ONCE,
        length_penalty: str = "gnmt:0.6",
        progress: Progress | None = None,
    ) -> list[list[Hypothesis]]:
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines, not one string")
        if beam < 1 or batch_size < 1 or not 1 <= n_best <= beam:
            raise UserError(
                f"beam {beam} and batch_size {batch_size} must be at least 1, n_best {n_best} "
                "from 1 to beam."
            )
        for number, line in enumerate(lines, start=1):
            if not line.isascii() and any("\ud800" <= letter <= "\udfff" for letter in line):
                raise UserError(
                    f"line {number} is not text: it holds half a character (surrogate)."
                )
        return search_lines(
            self.model,
            self.task.tokenizers,
            lines,
            beam=beam,
            n_best=n_best,
            batch_size=batch_size,
            penalty=read_penalty(length_penalty),
            exact=(lambda: self.double) if self.exact else None,
            progress=progress,
        )

    def evaluate(
        self,
        split: str = "test",
        *,
        data: str | Path | None = None,
        batch_size: int | None = None,
        limit: int | None = None,
        beam: int = 4,
        length_penalty: str = "gnmt:0.6",
        hypotheses: bool = False,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Nats per token, BLEU, chrF and exact match of a whole split, translated line by line.

        Where sacremoses is installed and knows the target language, and words are scored,
        `bleu_papers` too: lowercased, tokenised BLEU; else `details["not_scored"]` says why not.
        data: a folder in place of the corpus's directory. batch_size: lines translated at a time,
        None for 64; it changes no score.
        limit: the first so many lines. beam, length_penalty: as in `translate`.
        hypotheses: put every translation into the details.
        Raises UserError where the data are missing.
        """
        penalty = read_penalty(length_penalty)
        corpus = self.config.data.source
        if data is not None:
            corpus = reading_from(corpus, str(data))
            check_folder(str(data))
        corpus.check_split(split)
        pairs = read_split(corpus, split)
        if limit is not None:
            if limit < 1:
                raise UserError(f"limit must be at least 1 line, got {limit}.")
            pairs = pairs[:limit]
        tokenizers = self.task.tokenizers
        budget = min(MOST_SCORED, self.config.data.tokens_per_batch)
        batches = tasks.scoring_batches(EncodedPairs(pairs, tokenizers), budget)
        metrics, totals = evaluate(around(self.task, self.model), batches)
        sources = [source for source, _ in pairs]
        references = [target for _, target in pairs]
        started = time.perf_counter()
        found = self.translate(
            sources,
            beam=beam,
            length_penalty=length_penalty,
            batch_size=AT_ONCE if batch_size is None else batch_size,
            progress=progress,
        )
        seconds = time.perf_counter() - started
        scores = score_translations(
            found,
            references,
            tokenizer=corpus.bleu_tokenizer(),
            papers_language=corpus.target_language,
        )
        details: dict[str, Any] = {
            **scores.details(),
            "search": {"beam": beam, "length_penalty": str(penalty)},
            "dtype": self.dtype,
            "sentences_per_second": len(pairs) / seconds,
            "vocabulary": {"source": len(tokenizers.source), "target": len(tokenizers.target)},
            "tokens": int(totals["tokens"]),
            **beside(corpus, split, limit, nats_per_unit=totals["tokens"]),
            "samples": [
                {"source": source, "reference": reference, "translation": text}
                for source, reference, text in list(zip(sources, references, found, strict=True))[
                    :SAMPLE_ROWS
                ]
            ],
        }
        if hypotheses:
            details["hypotheses"] = found
        return Evaluation(
            "translation", split, {**metrics, **scores.metrics()}, int(totals["pairs"]), details
        )


def read_penalty(text: str) -> LengthPenalty:
    """The length penalty of an option; raises UserError for a text that names none."""
    try:
        return LengthPenalty.parse(text)
    except ValueError as error:
        raise UserError(str(error)) from error


def load(checkpoint: dict[str, Any], *, device: str = "cpu", dtype: Dtype = "fp32") -> Translator:
    """The model of a checkpoint's content (see `triptych.load`); device as in `device_named`."""
    return Translator(tasks.restore(checkpoint).to(device_named(device)), dtype=dtype)
