"""Random chorales, performances without data, and small random models of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from random_head import with_random_head

from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative import Relative
from triptych.core.layers import GELU
from triptych.core.positions import NoPositions
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.config import Config, DataConfig, ModelConfig
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer


@dataclass(frozen=True)
class Chorales(PieceSource):
    """Random pieces of so many sixteenths, others in each split."""

    steps: tuple[int, ...] = ()
    pitches: tuple[int, int] = (40, 80)
    tokenizer: ClassVar[MusicTokenizer] = ChoraleTokenizer()

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        random = np.random.default_rng(len(split))
        grids = [random.integers(*self.pitches, (steps, 4)) for steps in self.steps]
        return [Piece(str(number), grid) for number, grid in enumerate(grids)]


@dataclass(frozen=True)
class Performances(Chorales):
    """No pieces."""

    tokenizer: ClassVar[MusicTokenizer] = EventTokenizer()


def windows_of(length: int, overlap: int) -> MusicSettings:
    """Settings with windows of any length."""
    model = ModelConfig(tokenizer=EventTokenizer())
    return MusicSettings(model, sequence_length=length, overlap=overlap)


def tiny_model(
    source: Any,
    *,
    length: int,
    overlap: int = 0,
    batch_size: int = 2,
    n_layers: int = 1,
    attention: AttentionConfig | None = None,
    positions: Any = None,
    tokenizer: MusicTokenizer | None = None,
    **model: Any,
) -> MusicModel:
    """A random model of the music of a source, whose distribution is nearly uniform."""
    torch.manual_seed(0)
    transformer = TransformerConfig(
        n_layers=n_layers,
        d_model=16,
        n_heads=2,
        feed_forward=GELU(32),
        attention=attention or Relative(max_distance=9),
        positions=positions or NoPositions(),
    )
    data = DataConfig(source=source, sequence_length=length, overlap=overlap, batch_size=batch_size)
    kind = tokenizer or source.tokenizer
    config = Config(data=data, model=ModelConfig(transformer, tokenizer=kind, **model))
    return MusicModel.of_run(config, with_random_head(config.build_model()))
