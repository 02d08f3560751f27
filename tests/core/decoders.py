"""A decoder-only model of each kind of value, in double precision."""

from __future__ import annotations

from dataclasses import replace

from random_head import with_random_head

from triptych.core import positions as orders
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import ChannelEmbedding, PixelEmbedding, TokenEmbedding
from triptych.core.heads import CategoricalHead, MixtureOfLogisticsHead
from triptych.core.layers import GELU
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import (
    AxialEmbedding,
    LearnedEmbedding,
    MetricalEmbedding,
    SinusoidalEmbedding,
    SumOfEmbeddings,
)
from triptych.core.transformer import TransformerConfig
from triptych.core.universal import Halting, Universal

D = 12


def config(attention: object = None) -> TransformerConfig:
    return TransformerConfig(
        2, D, 3, feed_forward=GELU(16), dropout=0.0, attention=attention or Full()
    )


def tokens_model() -> DecoderOnly:
    positions = SumOfEmbeddings(
        [SinusoidalEmbedding(D), MetricalEmbedding(D, [(1, 4), (4, 4)]), LearnedEmbedding(11, D)]
    )
    return with_random_head(DecoderOnly(
        TokenEmbedding(7, D), positions, config(Relative(4)).decoder((11,)),
        CategoricalHead(D, 7), d_model=D,
    )).double()  # fmt: skip


def related_notes_model() -> DecoderOnly:
    """Symbols 0 to 4 are pitches, 5 and 6 are not; three voices."""
    attention = PitchTime(max_distance=6, n_voices=3, max_time=2, n_pitches=5)
    return with_random_head(DecoderOnly(
        TokenEmbedding(7, D), SinusoidalEmbedding(D), config(attention).decoder((11,)),
        CategoricalHead(D, 7), d_model=D,
    )).double()  # fmt: skip


def sub_pixel_model() -> DecoderOnly:
    attention, shape = Local2D(2, 2, 1, 1, order="blocks"), (3, 4, 3)
    order = attention.order_of(shape)
    return with_random_head(DecoderOnly(
        ChannelEmbedding(7, order.coordinates[:, 2], D), AxialEmbedding(order, D),
        config(attention).decoder(shape), CategoricalHead(D, 7), d_model=D,
    )).double()  # fmt: skip


def pixel_model() -> DecoderOnly:
    attention, shape = Local2D(2, 2, 1, 1), (3, 4, 1)
    return with_random_head(DecoderOnly(
        PixelEmbedding(7, 3, D), AxialEmbedding(orders.raster(shape), D),
        config(attention).decoder(shape),
        MixtureOfLogisticsHead(D, levels=7, channels=3, components=2), d_model=D,
    )).double()  # fmt: skip


def universal_model() -> DecoderOnly:
    """One block, applied at most three times at each position, which halts."""
    settings = replace(config(), n_layers=3, depth=Universal(Halting(threshold=0.8)))
    return with_random_head(DecoderOnly(
        TokenEmbedding(7, D), settings.input_positions(orders.raster((11,))),
        settings.decoder((11,)), CategoricalHead(D, 7), d_model=D,
    )).double()  # fmt: skip


MODELS = {
    "universal": (universal_model, (11,)),
    "tokens": (tokens_model, (11,)),
    "related notes": (related_notes_model, (11,)),
    "sub-pixels": (sub_pixel_model, (36,)),
    "pixels": (pixel_model, (12, 3)),
}
"""Models and the shapes of their values."""
