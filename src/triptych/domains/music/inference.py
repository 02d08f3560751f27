"""A trained music model in use: sample, continue, evaluate."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pretty_midi

from triptych.decoding.quantize import Dtype
from triptych.decoding.sampling import Sampling
from triptych.domains.music import task
from triptych.domains.music.baselines import ladder
from triptych.domains.music.data import evaluation_loader, read_pieces
from triptych.domains.music.midi import read_midi
from triptych.domains.music.representation import ChoraleGrid, Piece
from triptych.domains.music.sources import SPLITS, PieceSource, Split
from triptych.domains.music.windows import PositionSums, with_windows
from triptych.errors import UserError
from triptych.training.devices import device_named
from triptych.training.evaluate import Evaluation, Progress, evaluate, reading_from
from triptych.training.held_out import ALL, check_all
from triptych.training.known_law import beside
from triptych.training.weights import check_dtype, with_dtype

DEFAULT_SECONDS = 30.0
"""Length of sampled music where neither seconds nor length is given."""


class MusicModel:
    """A music model out of a checkpoint.

    dtype: fp32, bf16 or int8, as in `decoding.quantize`. Raises UserError for an impossible one.
    """

    def __init__(self, music_task: task.MusicTask, *, dtype: Dtype = "fp32") -> None:
        check_dtype(dtype, music_task.device)
        self.task = music_task.eval()
        self.dtype = dtype

    def with_dtype(self, dtype: Dtype) -> "MusicModel":
        """The same model, sampling and scoring in another precision."""
        return MusicModel(self.task, dtype=dtype)

    @property
    def config(self) -> task.Config:
        """All settings of the run that made it."""
        return self.task.config

    def sample(
        self,
        count: int,
        *,
        seconds: float | None = None,
        length: int | None = None,
        primer: pretty_midi.PrettyMIDI | str | Path | None = None,
        seed: int = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        compile: bool = False,
        progress: Progress | None = None,
    ) -> list[pretty_midi.PrettyMIDI]:
        """Draw pieces, or continuations that begin with the primer itself.

        seconds: at most so much new music (performances may end earlier, where the model ends the
        piece); length: or so many new tokens for performances, 16th steps for chorales; neither:
        30 seconds. The primer is written in the model's own representation: performances on the
        10 ms grid with the pedal applied, chorales on a grid of 16ths of the file's tempo.
        compile: run each step through torch.compile.
        progress: called with (tokens drawn, in all at most).
        Raises UserError for impossible values and for a primer that cannot be read.
        """
        if count < 1:
            raise UserError(f"count must be at least 1 piece, got {count}")
        if seconds is not None and length is not None:
            raise UserError("seconds and length were both given; expected one of them")
        if seconds is None and length is None:
            seconds = DEFAULT_SECONDS
        for name, value in (("seconds", seconds), ("length", length)):
            if value is not None and not 0 < value < float("inf"):
                raise UserError(f"{name} must be above 0, got {value}")
        try:
            sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
        except ValueError as error:
            raise UserError(str(error)) from error
        prompt = None
        if primer is not None:
            name = str(primer) if isinstance(primer, (str, Path)) else "the primer"
            midi = read_midi(primer) if isinstance(primer, (str, Path)) else primer
            try:
                prompt = self.task.representation.prompt(midi, name=name)
            except ValueError as error:
                raise UserError(f"{name}: {error}") from error
        check_dtype(self.dtype, self.task.device, compile=compile)
        tokens = with_dtype(self.task, self.dtype).draw(
            count,
            seconds=seconds,
            length=length,
            prompt=prompt,
            seed=seed,
            sampling=sampling,
            progress=progress,
            compile=compile,
        )
        n_prompt = 0 if prompt is None else len(prompt)
        return self.task.to_midi(tokens, seconds=seconds, n_prompt=n_prompt)

    def evaluate(
        self,
        split: Split | Literal["all"] = "test",
        *,
        data: str | Path | None = None,
        batch_size: int | None = None,
        limit: int | None = None,
        length: int | None = None,
        context: int | None = None,
        bucket: int | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Nats per token and per note over every token of every piece of a split.

        split: train, validation, test, or all for every piece of the folder `data`.
        data: a folder in place of the source's directory. batch_size: windows scored at once at
        most, which changes no result beyond rounding (int8 scales its inputs for
        each batch). limit: score only the first so many pieces.
        length, context: of the windows in tokens, as in `DataConfig`; None for the model's own, the
        context in proportion. Windows longer than in training also give the nats per token within
        and beyond the trained length. bucket: put the nats per token of each so many positions in
        the window into the details; with context 0 each window scores all of its positions.
        Raises UserError where the data are missing and for windows that the model cannot serve.
        """
        if split not in (*SPLITS, ALL):
            raise UserError(
                f"there is no split {split!r}; expected one of {', '.join(SPLITS)}, or all for a "
                "folder given in place of the model's own"
            )
        if limit is not None and limit < 1:
            raise UserError(f"limit must be at least 1 piece, got {limit}")
        if batch_size is not None and batch_size < 1:
            raise UserError(f"batch_size must be at least 1 window, got {batch_size}")
        if bucket is not None and bucket < 1:
            raise UserError(f"bucket must be at least 1 position, got {bucket}")
        judge = with_windows(self.task, length=length, context=context)
        settings = judge.config.data
        if data is not None:
            settings = replace(settings, source=reading_from(settings.source, str(data)))
        if split == ALL:
            check_all(self.config.data.source, data)
        pieces = read_pieces(settings.source, split)[:limit]
        batches = evaluation_loader(pieces, settings, batch_size=batch_size or settings.batch_size)
        judge = with_dtype(judge, self.dtype)
        positions, trained = PositionSums(judge), self.config.data.length
        metrics, totals = evaluate(judge, batches, progress, score=positions.score)
        metrics |= positions.metrics(trained)
        details: dict[str, Any] = {
            "dtype": self.dtype,
            "tokens": int(totals["tokens"]),
            "notes": int(totals["notes"]),
            "vocabulary_size": self.task.representation.vocabulary_size,
            "window_tokens": settings.length,
            "context_tokens": settings.context,
            "nats_per_token_of": self._ladder(settings.source, pieces, counted=split != ALL),
            **beside(settings.source, split, limit, nats_per_unit=totals["tokens"]),
        }
        if bucket is not None:
            details["by_position"] = {
                "trained_length": trained,
                "length": settings.length,
                "context": settings.context,
                "positions_per_bucket": bucket,
                "buckets": positions.buckets(bucket),
            }
        return Evaluation("music", split, metrics, len(pieces), details)

    def _ladder(
        self, source: PieceSource, held_out: list[Piece], *, counted: bool
    ) -> dict[str, float]:
        """Score simple models: the count models, where counted, need the training pieces.

        Reading a folder of performances for that would take minutes, so there only the uniform
        model stands beside.
        """
        kind = self.task.representation
        train: list[Piece] = []
        if counted and isinstance(kind, ChoraleGrid):
            try:
                train = source.load("train")
            except UserError:
                train = []  # the figures beside are a courtesy; the score needs no training data
        steps = ladder(
            kind, [kind.tokens(piece) for piece in train], [kind.tokens(p) for p in held_out]
        )
        return steps if train else {"uniform": steps["uniform"]}


def load(checkpoint: dict[str, Any], *, device: str = "cpu", dtype: Dtype = "fp32") -> MusicModel:
    """The model of a checkpoint's content (see `triptych.load`); device as in `device_named`."""
    return MusicModel(task.restore(checkpoint).to(device_named(device)), dtype=dtype)
