"""From pieces to batches: ids (packed too), random crops, windows that score each token once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.config.schema import to_plain
from triptych.domains.music.melody import PADDING, padded
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.sources.base import Piece
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.voice_orders import in_order, voice_orders
from triptych.errors import UserError
from triptych.training.loading.batches import Items, Ragged, cut, shuffled_batches
from triptych.training.loading.loader import FixedBatches, ResumableLoader
from triptych.training.loading.packed import Pack, PackWriter

if TYPE_CHECKING:
    from triptych.domains.music.config import Augmentation, Config, DataConfig

Choice = TypeVar("Choice")

CHUNK = 64
"""Pieces in memory at a time while they are packed."""
NO_PREVIOUS = -1
"""Previous token of a window at the start of a piece: the model begins with its start vector."""
MAX_TOKENS_PER_BATCH = 16_384
"""Largest number of tokens scored at a time: attention needs memory for the window's square."""


class Window(NamedTuple):
    """A window of a piece: `sequence_length` tokens from `start`, the first `skip` not scored."""

    tokens: Ids
    """Of the whole piece."""
    start: int
    skip: int = 0
    semitones: int = 0
    """Transposition."""
    order: int = 0
    """Order in which the voices of a step are written, by its number in `voice_orders`."""


def draw(choices: Sequence[Choice], generator: torch.Generator) -> Choice:
    """Return one of the choices, each with the same probability."""
    return choices[int(torch.randint(len(choices), (), generator=generator))]


def sounding_range(ids: Ids, tokenizer: MusicTokenizer) -> tuple[int, int]:
    """Return the lowest and the highest MIDI pitch of a piece; (highest, lowest) for silence."""
    sounding = tokenizer.id_pitches[ids]
    sounding = sounding[sounding >= 0]
    low, high = tokenizer.pitch_range
    return int(sounding.min(initial=high)), int(sounding.max(initial=low))


@dataclass(frozen=True)
class TrainingPieces:
    """Ids of the training pieces as they are and at each other speed, so that a crop is a slice."""

    tokens: Ragged
    """A row for each piece and speed."""
    whole: NDArray[np.int64]
    """Row of each piece as it is, [N]."""
    speeds: Ragged
    """Rows of each piece from which a crop draws one; empty for `whole`."""
    pitches: NDArray[np.int64]
    """Lowest and highest MIDI pitch of each piece, [N, 2]."""

    @classmethod
    def of(
        cls, pieces: Iterable[Piece], tokenizer: MusicTokenizer, augmentation: Augmentation
    ) -> TrainingPieces:
        """Return the ids of pieces at the speeds of the augmentation."""
        rows: list[Ids] = []
        whole: list[int] = []
        speeds: list[list[int]] = []
        pitches: list[tuple[int, int]] = []
        for piece in pieces:
            whole.append(len(rows))
            rows.append(tokenizer.tokens(piece.content))
            speeds.append([])
            for version in tokenizer.stretched(piece.content, augmentation.stretch):
                if version is not piece.content:
                    rows.append(tokenizer.tokens(version))
                speeds[-1].append(whole[-1] if version is piece.content else len(rows) - 1)
            pitches.append(sounding_range(rows[whole[-1]], tokenizer))
        dtype = np.min_scalar_type(tokenizer.vocabulary_size)
        return cls(Ragged.of(rows, dtype), np.array(whole), Ragged.of(speeds), np.array(pitches))

    @classmethod
    def of_ids(cls, rows: Sequence[Ids], tokenizer: MusicTokenizer) -> TrainingPieces:
        """Return pieces at one speed."""
        pitches = np.array([sounding_range(ids, tokenizer) for ids in rows])
        return cls(Ragged.of(rows), np.arange(len(rows)), Ragged.of([[]] * len(rows)), pitches)

    def crop(
        self, number: int, config: DataConfig, tokenizer: MusicTokenizer, generator: torch.Generator
    ) -> Window:
        """Draw a crop of a piece at a random speed and transposition."""
        shifts = config.augmentation.shifts(self.pitches[number], *tokenizer.pitch_range)
        semitones = draw(shifts, generator)
        speeds = self.speeds[number].tolist()
        tokens = self.tokens[draw(speeds, generator) if speeds else self.whole[number]]
        length, bar = config.sequence_length, tokenizer.bar
        latest = -(-max(0, len(tokens) - length) // bar)  # the bar whose crop reaches the end
        # As if crops began before the piece and ended after it: else hardly one has the beginning.
        beyond = max(1, min(length, len(tokens)) // bar)
        start = bar * min(max(0, draw(range(1 - beyond, latest + beyond), generator)), latest)
        if config.infilling_share and (
            float(torch.rand((), generator=generator)) < config.infilling_share
        ):
            part = tokens[start : start + config.sequence_length].astype(np.int64)
            return Window(tokenizer.fill_example(part, generator), 0, semitones=semitones)
        share, order = config.augmentation.reordered_share, 0
        if share and float(torch.rand((), generator=generator)) < share:
            order = draw(range(len(voice_orders(len(tokenizer.voice_ranges)))), generator)
        return Window(tokens, start, semitones=semitones, order=order)


def read_training_and_validation(
    config: DataConfig, tokenizer: MusicTokenizer
) -> tuple[TrainingPieces, Sequence[Ids]]:
    """Return the training pieces and the ids of each validation piece.

    Raises UserError for missing data and for a pack of other ids or speeds.
    """
    if config.packed is None:
        train = TrainingPieces.of(
            config.source.stream("train", tokenizer), tokenizer, config.augmentation
        )
        validation = config.source.stream("validation", tokenizer)
        return train, [tokenizer.tokens(piece.content) for piece in validation]
    pack = Pack(config.packed, "music")
    tokenizer.check_vocabulary(pack.about["vocabulary"], f"data.packed {config.packed}")
    speeds = pack.about["data"]["augmentation"]["stretch"]
    if list(config.augmentation.stretch) != speeds:
        raise UserError(
            f"data.packed {config.packed} holds music at the speeds {speeds}, and "
            f"data.augmentation.stretch is {list(config.augmentation.stretch)}: pack again"
        )
    train = TrainingPieces(
        pack.ragged("tokens"), pack.array("whole"), pack.ragged("speeds"), pack.array("pitches")
    )
    return train, list(pack.ragged("validation"))


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
    order: Tensor | None = None
    """int64 [B]: orders of the voices; None for a model without `voice_orders`"""


def make_batch(windows: list[Window], settings: MusicSettings) -> Batch:
    """Pad windows to the longest of them; add the melodies that the model is given."""
    tokenizer = settings.tokenizer
    width = min(settings.sequence_length, max(len(w.tokens) - w.start for w in windows))
    values = np.full((len(windows), width), PADDING, dtype=np.int64)
    previous = np.full(len(windows), NO_PREVIOUS, dtype=np.int64)
    scored = np.zeros((len(windows), width), dtype=bool)
    onsets = np.zeros((len(windows), width), dtype=bool)
    for row, window in enumerate(windows):
        # The bar before the window decides which of its first tokens begin a note.
        context = min(window.start, tokenizer.bar)
        part = window.tokens[window.start - context : window.start + width].astype(np.int64)
        if window.order:
            part = in_order(part, voice_orders(len(tokenizer.voice_ranges))[window.order])
        ids = tokenizer.transpose(part, window.semitones)
        count = len(ids) - context
        values[row, :count] = ids[context:]
        scored[row, window.skip : count] = True
        onsets[row, :count] = tokenizer.onsets(ids)[context:]
        if context:
            previous[row] = ids[context - 1]
    batch = Batch(*map(torch.from_numpy, (values, previous, scored, onsets & scored)))
    if settings.model.voice_orders:
        batch = batch._replace(order=torch.tensor([window.order for window in windows]))
    if (melody := settings.window_melody) is None:
        return batch
    melodies = [melody.of_window(w.tokens, w.start, w.semitones) for w in windows]
    return batch._replace(melody=padded(melodies))


def training_batches(
    pieces: TrainingPieces, config: DataConfig, settings: MusicSettings, *, seed: int
) -> ResumableLoader:
    """Return random crops of augmented pieces.

    In an epoch, a piece gives as many crops as windows without overlap would cover it.
    """
    tokenizer = settings.tokenizer
    crops = -(-pieces.tokens.lengths[pieces.whole] // settings.sequence_length)
    items = np.repeat(np.arange(len(crops)), crops)  # piece of each crop

    def batch(numbers: Items, generator: torch.Generator | None) -> Batch:
        assert generator is not None
        windows = [pieces.crop(number, config, tokenizer, generator) for number in items[numbers]]
        return make_batch(windows, settings)

    plan = shuffled_batches(len(items), config.batch_size)
    return ResumableLoader(len(items), plan, batch, seed=seed, name="the training music")


def evaluation_batches(
    pieces: Iterable[Ids],
    settings: MusicSettings,
    *,
    batch_size: int,
    order_numbers: Sequence[int] = (0,),
) -> FixedBatches:
    """Return windows over whole pieces, without augmentation, that score each token once.

    pieces: ids of each. batch_size: windows at a time, fewer where they would exceed
    MAX_TOKENS_PER_BATCH. order_numbers: orders of the voices, of each of which a window has a row.
    """
    windows = [
        Window(tokens, start, settings.overlap if start else 0)
        for tokens in pieces
        for start in settings.window_starts(len(tokens))
    ]

    def batch(numbers: Items, generator: torch.Generator | None) -> Batch:
        chosen = (windows[number] for number in numbers)
        return make_batch(
            [w._replace(order=order) for w in chosen for order in order_numbers], settings
        )

    batch_size = min(
        batch_size, max(1, MAX_TOKENS_PER_BATCH // (len(order_numbers) * settings.sequence_length))
    )
    return FixedBatches(cut(range(len(windows)), batch_size), batch, name="the music to be scored")


def pack(config: Config, writer: PackWriter) -> str:
    """Write the pieces as ids; return a sentence about them."""
    data = config.data
    tokenizer = config.model.tokenizer
    n_pieces = n_rows = 0
    train = iter(data.source.stream("train", tokenizer))
    while some := list(islice(train, CHUNK)):
        part = TrainingPieces.of(some, tokenizer, data.augmentation)
        writer.append_ragged("tokens", part.tokens)
        writer.append("whole", part.whole + n_rows)
        writer.append_ragged("speeds", Ragged(part.speeds.values + n_rows, part.speeds.offsets))
        writer.append("pitches", part.pitches)
        n_pieces, n_rows = n_pieces + len(part.whole), n_rows + len(part.tokens)
    if not n_pieces:
        raise UserError("the training music is empty; at least one piece is needed")
    validation = data.source.stream("validation", tokenizer)
    rows = [tokenizer.tokens(piece.content) for piece in validation]
    writer.append_ragged("validation", Ragged.of(rows, part.tokens.values.dtype))
    about = {"domain": "music", "data": to_plain(data), "vocabulary": tokenizer.vocabulary}
    writer.finish(about)
    return f"{n_pieces:,} training pieces"
