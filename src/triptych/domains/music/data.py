"""From pieces to batches: random crops to train on, windows that score each token once."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music.augment import Augmentation
from triptych.domains.music.representation import Piece, Representation
from triptych.domains.music.sources import Music21Chorales, PieceSource, Split
from triptych.training.data import FixedBatches, ResumableLoader, fixed_batches, shuffled_batches
from triptych.training.held_out import ALL

PADDING = -1
"""Fills rows of unequal length; no representation has an id below 0."""

NO_PREVIOUS = -1
"""Stands for the token before a piece's first one: the model begins with its start vector."""

TOKENS_IN_EVALUATION = 16_384
"""Most tokens scored at a time, since the memory of attention grows with the window's square."""


@dataclass(frozen=True)
class DataConfig:
    """Which music, how it is varied, and how long the windows are."""

    source: PieceSource = field(default_factory=Music21Chorales)
    """Where the pieces come from: Music21Chorales, JSBChorales or MidiFolder."""
    length: int = 512
    """Length of a window, in tokens: the most that the model sees, in training and after."""
    context: int = 256
    """Tokens before each scored token that its window holds at the least, where the piece has them;
    in sampling, what is kept when the window is full."""
    batch_size: int = 16
    """Windows in a batch."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    """How training pieces are varied."""
    samples: int = 1
    """Pieces sampled after each validation to listen to; 0 for none."""
    sample_seconds: float = 20.0
    """Length of those pieces, in seconds."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.samples < 0 or not self.sample_seconds > 0:
            raise ValueError(
                f"samples must be 0 or more and sample_seconds above 0, got {self.samples} of "
                f"{self.sample_seconds} s"
            )
        if not 0 <= self.context < self.length:
            raise ValueError(
                f"context must be from 0 to less than length, got {self.context} tokens of "
                f"{self.length}"
            )
        unit = self.source.representation.alignment
        for name, value in (("length", self.length), ("context", self.context)):
            if value % unit:
                raise ValueError(
                    f"{name} must be a multiple of {unit} tokens for "
                    f"{self.source.representation.name} (one bar), got {value}"
                )


def read_pieces(source: PieceSource, split: Split | Literal["all"]) -> list[Piece]:
    """Return the pieces of a split, or of all splits for `all`.

    Raises UserError where files are missing or nothing is left.
    """
    return source.load_all() if split == ALL else source.load(split)


@dataclass
class Batch:
    """Windows of pieces, side by side; not frozen, as Lightning moves its tensors."""

    values: Tensor
    """int64 [B, L]: ids, PADDING behind the end of a row"""
    previous: Tensor
    """int64 [B]: the id before the window, NO_PREVIOUS where the piece begins"""
    scored: Tensor
    """bool [B, L]: which positions count; never padding"""
    onsets: Tensor
    """bool [B, L]: which of the scored positions begin a note"""


class Window(NamedTuple):
    """Part of a piece: tokens start .. start + length, of which the first `skip` are context."""

    piece: int
    start: int
    skip: int


@dataclass(frozen=True)
class Written:
    """A piece as tokens."""

    tokens: NDArray[np.int64]
    onsets: NDArray[np.bool_]

    @classmethod
    def of(cls, piece: Piece, representation: Representation) -> "Written":
        """Write a piece."""
        tokens = representation.tokens(piece)
        return cls(tokens, representation.onsets(tokens))


def window_starts(n_tokens: int, *, length: int, context: int) -> list[int]:
    """List where the windows of a piece start: every length - context tokens, until all is seen."""
    starts = [0]
    while starts[-1] + length < n_tokens:
        starts.append(starts[-1] + length - context)
    return starts


def evaluation_windows(written: list[Written], *, length: int, context: int) -> list[Window]:
    """Cut whole pieces so that each token is scored once, with its context before it."""
    return [
        Window(number, start, context if start else 0)
        for number, piece in enumerate(written)
        for start in window_starts(len(piece.tokens), length=length, context=context)
    ]


def make_batch(rows: list[tuple[Written, int, int]], *, length: int) -> Batch:
    """Put windows (piece, start, tokens of context) side by side, as long as the longest."""
    width = min(length, max(len(piece.tokens) - start for piece, start, _ in rows))
    values = np.full((len(rows), width), PADDING, dtype=np.int64)
    previous = np.full(len(rows), NO_PREVIOUS, dtype=np.int64)
    scored = np.zeros((len(rows), width), dtype=bool)
    onsets = np.zeros((len(rows), width), dtype=bool)
    for row, (piece, start, skip) in enumerate(rows):
        tokens = piece.tokens[start : start + width]
        values[row, : len(tokens)] = tokens
        scored[row, skip : len(tokens)] = True
        onsets[row, : len(tokens)] = piece.onsets[start : start + width]
        if start:
            previous[row] = piece.tokens[start - 1]
    return Batch(
        torch.from_numpy(values),
        torch.from_numpy(previous),
        torch.from_numpy(scored),
        torch.from_numpy(onsets & scored),
    )


def crop_start(n_tokens: int, *, length: int, unit: int, generator: torch.Generator) -> int:
    """Draw where a training crop starts: a multiple of `unit`, the last one reaching the end."""
    last = -(-max(0, n_tokens - length) // unit)
    return unit * int(torch.randint(last + 1, (), generator=generator))


def _crops(pieces: list[Piece], config: DataConfig) -> list[int]:
    """Number of the piece of each of an epoch's crops."""
    representation = config.source.representation
    return [
        number
        for number, piece in enumerate(pieces)
        for _ in range(-(-len(representation.tokens(piece)) // config.length))
    ]


def crop_lengths(
    pieces: list[Piece], config: DataConfig, generator: torch.Generator
) -> NDArray[np.int64]:
    """Tokens of an epoch's crops of unvaried pieces, int64 [N], for one draw of their starts."""
    kind, length = config.source.representation, config.length
    sizes = [len(kind.tokens(piece)) for piece in pieces]
    crops = [sizes[number] for number in _crops(pieces, config)]
    return np.array(
        [
            min(
                length,
                size - crop_start(size, length=length, unit=kind.alignment, generator=generator),
            )
            for size in crops
        ]
    )


def training_loader(pieces: list[Piece], config: DataConfig, *, seed: int) -> ResumableLoader:
    """Random crops of varied pieces; a piece comes up as often an epoch as crops fit into it."""
    representation = config.source.representation
    items = [pieces[number] for number in _crops(pieces, config)]

    def batch(numbers: list[int], generator: torch.Generator | None) -> Batch:
        assert generator is not None
        rows = []
        for number in numbers:
            piece = representation.augment(items[number], config.augmentation, generator)
            written = Written.of(piece, representation)
            start = crop_start(
                len(written.tokens),
                length=config.length,
                unit=representation.alignment,
                generator=generator,
            )
            rows.append((written, start, 0))
        return make_batch(rows, length=config.length)

    plan = shuffled_batches(len(items), config.batch_size)
    return ResumableLoader(len(items), plan, batch, seed=seed, name="The training music")


def evaluation_loader(pieces: list[Piece], config: DataConfig, *, batch_size: int) -> FixedBatches:
    """Windows over whole pieces, nothing varied, nothing left out; see `evaluation_windows`.

    batch_size: windows at a time, fewer where they would exceed TOKENS_IN_EVALUATION.
    """
    representation = config.source.representation
    written = [Written.of(piece, representation) for piece in pieces]
    return scoring_loader(written, config, batch_size=batch_size)


def scoring_loader(
    written: list[Written], config: DataConfig, *, batch_size: int, skip: int = 0
) -> FixedBatches:
    """The same over pieces that are written already, without the first `skip` tokens of each."""
    windows = [
        Window(w.piece, w.start, max(w.skip, skip - w.start))
        for w in evaluation_windows(written, length=config.length, context=config.context)
    ]
    batch_size = min(batch_size, max(1, TOKENS_IN_EVALUATION // config.length))

    def batch(numbers: list[int], generator: torch.Generator | None) -> Batch:
        rows = [(written[w.piece], w.start, w.skip) for w in (windows[n] for n in numbers)]
        return make_batch(rows, length=config.length)

    return fixed_batches(len(windows), batch, batch_size=batch_size, name="The music to be scored")
