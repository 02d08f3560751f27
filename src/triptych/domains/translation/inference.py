"""A trained translation model in use: translate, evaluate."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, overload

from triptych.decoding.beam import LengthPenalty, PenaltyName
from triptych.domains.translation import task as tasks
from triptych.domains.translation.corpora import check_folder
from triptych.domains.translation.data import EncodedPairs, read_split
from triptych.domains.translation.decode import translate_lines
from triptych.domains.translation.score import score_translations
from triptych.errors import UserError
from triptych.training.devices import device_named
from triptych.training.evaluation import Evaluation, Progress, evaluate, reading_from

AT_ONCE = 64
"""Lines translated at a time where nobody says otherwise."""
MOST_SCORED = 4_096
"""Most tokens scored at a time: a training batch for a large GPU would fill a laptop."""
SAMPLE_ROWS = 20
"""Lines of a split that an evaluation shows."""


class Translator:
    """A translation model out of a checkpoint.

    exact: search in double precision. Rounding depends on the shape of a batch, and in single
    precision it can turn a near-tie between two hypotheses (a gap below 1e-6 comes about twice in
    a thousand captions), so that a line would read otherwise in another batch. It takes about
    twice the time; MPS has no double precision and searches in single.
    """

    def __init__(self, task: tasks.TranslationTask, *, exact: bool = True) -> None:
        self.task = task.eval()
        self._model = task.model
        if exact and task.device.type != "mps":
            self._model = copy.deepcopy(task.model).double()

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
        length_penalty: PenaltyName = "gnmt",
        alpha: float = 0.6,
        progress: Progress | None = None,
    ) -> list[str] | list[list[str]]:
        """One translation for each line; for n_best above 1 a list of n_best, best first.

        beam: hypotheses kept, 1 for greedy. batch_size: lines at a time, which changes no text.
        length_penalty, alpha: see `decoding.beam.LengthPenalty`. A blank line gives an empty one
        without a run of the model; no translation has a line end in it, or is longer than its
        source by more than 50 tokens. Raises UserError for impossible values.
        """
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
        try:
            penalty = LengthPenalty(length_penalty, alpha)
        except ValueError as error:
            raise UserError(f"{error}.") from error
        found = translate_lines(
            self._model,
            self.task.tokenizers,
            lines,
            beam=beam,
            n_best=n_best,
            batch_size=batch_size,
            penalty=penalty,
            progress=progress,
        )
        return [best[0] for best in found] if n_best == 1 else found

    def evaluate(
        self,
        split: str = "test",
        *,
        data: str | Path | None = None,
        batch_size: int | None = None,
        limit: int | None = None,
        beam: int = 4,
        hypotheses: bool = False,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Nats per token, BLEU, chrF and exact match of a whole split, translated line by line.

        data: a folder in place of the corpus's directory. batch_size: lines translated at a time,
        None for 64; it changes no score.
        limit: the first so many lines. hypotheses: put every translation into the details.
        Raises UserError where the data are missing.
        """
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
        metrics, totals = evaluate(self.task, batches)
        sources = [source for source, _ in pairs]
        references = [target for _, target in pairs]
        found = self.translate(
            sources,
            beam=beam,
            batch_size=AT_ONCE if batch_size is None else batch_size,
            progress=progress,
        )
        scores = score_translations(found, references, tokenizer=corpus.bleu_tokenizer())
        details: dict[str, Any] = {
            "signatures": scores.signatures,
            "search": {"beam": beam, "length_penalty": "gnmt", "alpha": 0.6},
            "vocabulary": {"source": len(tokenizers.source), "target": len(tokenizers.target)},
            "tokens": int(totals["tokens"]),
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


def load(checkpoint: dict[str, Any], *, device: str = "cpu") -> Translator:
    """The model of a checkpoint's content (see `triptych.load`); device as in `device_named`."""
    return Translator(tasks.restore(checkpoint).to(device_named(device)))
