"""Training pieces as ids at each speed, in memory or packed in files, and random crops of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.config.schema import to_plain
from triptych.domains.music.config import Augmentation, Config, DataConfig
from triptych.domains.music.notes import Ids
from triptych.domains.music.sources.base import Piece
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError
from triptych.training.loading.batches import Ragged
from triptych.training.loading.packed import Pack, PackWriter

Choice = TypeVar("Choice")

CHUNK = 64
"""Pieces in memory at a time."""


class Window(NamedTuple):
    """A window of a piece: `sequence_length` tokens from `start`, the first `skip` not scored."""

    tokens: Ids
    """Of the whole piece."""
    start: int
    skip: int = 0
    semitones: int = 0
    """Transposition."""


def draw(choices: Sequence[Choice], generator: torch.Generator) -> Choice:
    """Return one of the choices, each with the same probability."""
    return choices[int(torch.randint(len(choices), (), generator=generator))]


def crop_start(n_tokens: int, *, length: int, bar: int, generator: torch.Generator) -> int:
    """Draw the start of a training crop: a multiple of `bar`; the last one reaches the end."""
    last = -(-max(0, n_tokens - length) // bar)
    return bar * int(torch.randint(last + 1, (), generator=generator))


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
            drawn = []
            for version in tokenizer.stretched(piece.content, augmentation.stretch):
                if version is not piece.content:
                    rows.append(tokenizer.tokens(version))
                drawn.append(whole[-1] if version is piece.content else len(rows) - 1)
            speeds.append(drawn)
            sounding = tokenizer.pitches(piece.content)
            low, high = tokenizer.pitch_range
            pitches.append((int(sounding.min(initial=high)), int(sounding.max(initial=low))))
        dtype = np.min_scalar_type(tokenizer.vocabulary_size)
        return cls(Ragged.of(rows, dtype), np.array(whole), Ragged.of(speeds), np.array(pitches))

    @classmethod
    def from_pack(cls, pack: Pack) -> TrainingPieces:
        """Return the packed pieces."""
        return cls(
            pack.ragged("tokens"),
            pack.array("whole"),
            pack.ragged("speeds"),
            pack.array("pitches"),
        )

    def crop(
        self,
        number: int,
        config: DataConfig,
        tokenizer: MusicTokenizer,
        generator: torch.Generator,
    ) -> Window:
        """Draw a crop of a piece at a random speed and transposition."""
        shifts = config.augmentation.shifts(self.pitches[number], *tokenizer.pitch_range)
        semitones = draw(shifts, generator)
        speeds = self.speeds[number].tolist()
        tokens = self.tokens[draw(speeds, generator) if speeds else self.whole[number]]
        start = crop_start(
            len(tokens), length=config.sequence_length, bar=tokenizer.bar, generator=generator
        )
        return Window(tokens, start, semitones=semitones)


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
    return TrainingPieces.from_pack(pack), list(pack.ragged("validation"))


def pack(config: Config, writer: PackWriter) -> str:
    """Write the pieces as ids; return a sentence about them."""
    data = config.data
    tokenizer = config.model.tokenizer
    n_pieces = n_rows = 0
    train = data.source.stream("train", tokenizer)
    while some := list(islice(train, CHUNK)):
        part = TrainingPieces.of(some, tokenizer, data.augmentation)
        writer.append_ragged("tokens", part.tokens)
        writer.append("whole", part.whole + n_rows)
        writer.append_ragged("speeds", Ragged(part.speeds.values + n_rows, part.speeds.offsets))
        writer.append("pitches", part.pitches)
        n_pieces, n_rows = n_pieces + len(part.whole), n_rows + len(part.tokens)
    if not n_pieces:
        raise UserError("the training music is empty; at least one piece is needed")
    writer.append_ragged("validation", Ragged.of([], part.tokens.values.dtype))
    for piece in data.source.stream("validation", tokenizer):
        row = Ragged.of([tokenizer.tokens(piece.content)], part.tokens.values.dtype)
        writer.append_ragged("validation", row)
    about = {"domain": "music", "data": to_plain(data), "vocabulary": tokenizer.vocabulary}
    writer.finish(about)
    return f"{n_pieces:,} training pieces in {writer.folder}"
