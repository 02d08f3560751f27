"""From pieces to batches: random crops for training, windows that score each token once."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from triptych.domains.music.config import DataConfig
from triptych.domains.music.melody import WindowMelody, padded
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.packed import TrainingPieces, Window
from triptych.domains.music.sources.base import SPLITS, Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError
from triptych.files.splits import ALL
from triptych.training.loading.batches import Items, cut, shuffled_batches
from triptych.training.loading.loader import FixedBatches, ResumableLoader

PADDING = -1
"""Fills rows of unequal length; no tokenizer has an id below 0."""
NO_PREVIOUS = -1
"""Previous token of a window at the start of a piece: the model begins with its start vector."""
MAX_TOKENS_PER_BATCH = 16_384
"""Largest number of tokens scored at a time: attention needs memory for the window's square."""


def read_pieces(source: PieceSource, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
    """Return the pieces of a split, or of all splits for `all`.

    Raises UserError for an unknown split and for missing files.
    """
    if split == ALL:
        return source.load_all(tokenizer)
    if split not in SPLITS:
        raise UserError(
            f"there is no split {split!r}; expected one of {', '.join(SPLITS)}, or all for a "
            "folder given in place of the model's own"
        )
    return source.load(split, tokenizer)


class Batch(NamedTuple):
    """Windows of pieces."""

    values: Tensor
    """int64 [B, L]: ids, PADDING after the end of a row"""
    previous: Tensor
    """int64 [B]: the id before the window, NO_PREVIOUS at the start of a piece"""
    scored: Tensor
    """bool [B, L]: which positions count; never padding"""
    onsets: Tensor
    """bool [B, L]: which of the scored positions begin a note"""
    melody: Tensor | None = None
    """int64 [B, K]: melodies of `melody.padded`; None for a model without an encoder"""


def window_starts(n_tokens: int, *, length: int, overlap: int) -> list[int]:
    """Return the starts of a piece's windows: every length - overlap tokens up to its end."""
    return list(range(0, max(1, n_tokens - overlap), length - overlap))


def make_batch(
    windows: list[Window],
    tokenizer: MusicTokenizer,
    *,
    length: int,
    melody: WindowMelody | None = None,
) -> Batch:
    """Pad windows to the longest of them, at most `length` tokens; melody: reads their melodies."""
    width = min(length, max(len(w.tokens) - w.start for w in windows))
    values = np.full((len(windows), width), PADDING, dtype=np.int64)
    previous = np.full(len(windows), NO_PREVIOUS, dtype=np.int64)
    scored = np.zeros((len(windows), width), dtype=bool)
    onsets = np.zeros((len(windows), width), dtype=bool)
    for row, window in enumerate(windows):
        # The bar before the window decides which of its first tokens begin a note.
        context = min(window.start, tokenizer.bar)
        part = window.tokens[window.start - context : window.start + width].astype(np.int64)
        ids = tokenizer.transpose(part, window.semitones)
        count = len(ids) - context
        values[row, :count] = ids[context:]
        scored[row, window.skip : count] = True
        onsets[row, :count] = tokenizer.onsets(ids)[context:]
        if context:
            previous[row] = ids[context - 1]
    batch = Batch(*map(torch.from_numpy, (values, previous, scored, onsets & scored)))
    if melody is None:
        return batch
    melodies = [melody.of_window(w.tokens, w.start, w.semitones) for w in windows]
    return batch._replace(melody=padded(melodies))


def training_batches(
    pieces: TrainingPieces, config: DataConfig, settings: MusicSettings, *, seed: int
) -> ResumableLoader:
    """Return random crops of augmented pieces, with the melodies that the model is given.

    In an epoch, a piece gives as many crops as windows without overlap would cover it.
    """
    length = config.sequence_length
    tokenizer, melody = settings.tokenizer, settings.window_melody
    crops = -(-pieces.tokens.lengths[pieces.whole] // length)
    items = np.repeat(np.arange(len(crops)), crops)  # piece of each crop

    def batch(numbers: Items, generator: torch.Generator | None) -> Batch:
        assert generator is not None
        windows = [pieces.crop(number, config, tokenizer, generator) for number in items[numbers]]
        return make_batch(windows, tokenizer, length=length, melody=melody)

    plan = shuffled_batches(len(items), config.batch_size)
    return ResumableLoader(len(items), plan, batch, seed=seed, name="the training music")


def evaluation_batches(
    pieces: Iterable[Ids], settings: MusicSettings, *, batch_size: int
) -> FixedBatches:
    """Return windows over whole pieces, without augmentation, that score each token once.

    pieces: ids of each. batch_size: windows at a time, fewer where they would exceed
    MAX_TOKENS_PER_BATCH.
    """
    length, overlap = settings.sequence_length, settings.overlap
    tokenizer, melody = settings.tokenizer, settings.window_melody
    windows = [
        Window(tokens, start, overlap if start else 0)
        for tokens in pieces
        for start in window_starts(len(tokens), length=length, overlap=overlap)
    ]

    def batch(numbers: Items, generator: torch.Generator | None) -> Batch:
        chosen = [windows[number] for number in numbers]
        return make_batch(chosen, tokenizer, length=length, melody=melody)

    batch_size = min(batch_size, max(1, MAX_TOKENS_PER_BATCH // length))
    return FixedBatches(cut(range(len(windows)), batch_size), batch, name="the music to be scored")
