"""Packed music: the ids of the training and validation pieces, at each speed, in files."""

from __future__ import annotations

from itertools import islice

from triptych.config.schema import to_plain
from triptych.domains.music.config import Config
from triptych.domains.music.data import TrainingPieces
from triptych.errors import UserError
from triptych.training.loading.batches import Ragged
from triptych.training.loading.packed import PackWriter

CHUNK = 64
"""Pieces in memory at a time."""


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
