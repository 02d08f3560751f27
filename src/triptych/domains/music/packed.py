"""Packed music: the ids of the training and validation pieces, at each speed, in files."""

from __future__ import annotations

from dataclasses import fields

from triptych.config.schema import to_plain
from triptych.domains.base import ProgressFactory
from triptych.domains.music.config import Config
from triptych.domains.music.data import TrainingPieces
from triptych.training.packed import PackWriter
from triptych.training.ragged import Ragged


def pack(config: Config, writer: PackWriter, report: ProgressFactory) -> str:
    """Write the pieces as ids; return a sentence about them."""
    data = config.data
    tokenizer = data.source.tokenizer
    train = TrainingPieces.of(data.source.load("train"), data)
    for field in fields(train):
        array = getattr(train, field.name)
        if isinstance(array, Ragged):
            writer.append_ragged(field.name, array)
        else:
            writer.append(field.name, array)
    validation = [tokenizer.tokens(piece.content) for piece in data.source.load("validation")]
    writer.append_ragged("validation", Ragged.of(validation, train.tokens.values.dtype))
    about = {"domain": "music", "data": to_plain(data), "vocabulary": tokenizer.vocabulary}
    writer.finish(about)
    return f"{len(train.whole):,} training pieces in {writer.folder}"
