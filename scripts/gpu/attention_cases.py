"""The contract's cases: every example of every attention variant, found by itself."""

from __future__ import annotations

import importlib
import math
import pkgutil
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

import triptych.core.attention as package
from triptych.core.attention.compressed import Compressed
from triptych.core.attention.full import Full
from triptych.core.attention.grouped import GroupedQueries
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.attention.relative_local import RelativeLocal
from triptych.core.positions import GenerationOrder, RotaryEmbedding
from triptych.core.state import ForwardContext, LayerCache

D_MODEL, N_HEADS, BATCH = 12, 3, 2


class Example(NamedTuple):
    """A small setting of a variant, on which the contract tests run."""

    config: AttentionConfig
    shape: tuple[int, ...]
    causal: bool = True


def concrete_subclasses(base: type) -> list[type]:
    found = []
    for subclass in base.__subclasses__():
        found += [subclass, *concrete_subclasses(subclass)]
    return found


IMAGES: list[tuple[int, ...]] = [(4, 6, 3), (7, 5, 2), (5, 7)]
BLOCKS = [(2, 3, 1, 1), (2, 2, 2, 3), (3, 2, 0, 0), (4, 4, 9, 9)]

BORDERS: dict[type, list[Example]] = {
    Compressed: [
        Example(Compressed(), (13,)),
        Example(Compressed(stride=4), (16,)),  # divides the length
        Example(Compressed(stride=2), (15,)),
        Example(Compressed(stride=1), (7,)),  # no position is seen as it is
        Example(Compressed(stride=12), (13,)),  # one block
    ],
    Full: [Example(Full(), (13,)), Example(Full(), (13,), causal=False)],
    GroupedQueries: [
        Example(GroupedQueries(), (13,)),
        Example(GroupedQueries(window=4), (15,)),
        Example(GroupedQueries(), (13,), causal=False),
    ],
    Local1D: [
        Example(Local1D(block=4, memory=4), (16,)),
        Example(Local1D(block=4, memory=6), (15,)),  # neither divides the length
        Example(Local1D(block=3, memory=0), (10,)),
        Example(Local1D(block=32, memory=8), (13,)),
        Example(Local1D(block=6, memory=6), (4, 3, 3)),
    ],
    # Every pair of an order, an image size and a setting of block and halo is in one example.
    Local2D: [
        Example(Local2D(*setting, "raster" if (row + column) % 2 == 0 else "blocks"), shape)
        for row, shape in enumerate(IMAGES)
        for column, setting in enumerate(BLOCKS)
    ]
    + [Example(Local2D(2, 3, 1, 1, wrapped=True), shape) for shape in ((5, 8), (4, 6, 3), (3, 5))],
    PitchTime: [
        Example(PitchTime(max_distance=32, n_voices=4, max_time=8, n_pitches=6), (13,)),
        # Longer than the longest distance and time.
        Example(PitchTime(max_distance=5, n_voices=2, max_time=3, n_pitches=6), (13,)),
        Example(PitchTime(max_distance=5, n_voices=1, max_time=20, n_pitches=20), (13,)),
    ],
    Relative: [
        Example(Relative(max_distance=32), (13,)),  # table longer than the sequence
        Example(Relative(max_distance=5), (13,)),  # beyond the longest distance
        Example(Relative(max_distance=32, window=4), (13,)),  # a ring that is not filled
        Example(Relative(max_distance=2, window=5), (15,)),
        Example(Relative(max_distance=32, window=40), (13,)),
        Example(Relative(max_distance=5), (13,), causal=False),
        Example(Relative(max_distance=32, window=3), (13,), causal=False),
    ],
    RelativeLocal: [
        Example(RelativeLocal(block=4), (16,)),
        Example(RelativeLocal(block=4), (15,)),  # does not divide the length
        Example(RelativeLocal(block=1), (10,)),
        Example(RelativeLocal(block=9), (13,)),  # all of the past is visible
        Example(RelativeLocal(block=32), (13,)),
    ],
}
"""Small settings that reach each border of a variant."""


def all_examples() -> list[Example]:
    """A new file in core/attention is enough to be here, by its default settings."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return [
        example
        for variant in concrete_subclasses(AttentionConfig)
        if variant.__module__.startswith(package.__name__) or variant in BORDERS
        for example in BORDERS.get(variant) or [Example(variant(), (13,))]
    ]


def examples_of(module: str) -> list[Example]:
    """Examples of the variants that a module outside the package defines, by default settings."""
    found = vars(importlib.import_module(module)).values()
    variants = [
        kind for kind in found
        if isinstance(kind, type) and issubclass(kind, AttentionConfig)
        and kind.__module__ == module and not kind.__abstractmethods__
    ]  # fmt: skip
    return [
        Example(kind(), (13,), causal)
        for kind in variants
        for causal in ((True,) if kind.causal_only else (True, False))
    ]


def name(example: Example) -> str:
    kind = "" if example.causal else "-both-ways"
    return f"{example.config}-{'x'.join(map(str, example.shape))}{kind}"


@dataclass(frozen=True)
class WithRotary(AttentionConfig):
    """Any variant with rotary positions."""

    inner: AttentionConfig

    def mask_pattern(self, shape: tuple[int, ...], causal: bool) -> MaskPattern:
        return self.inner.mask_pattern(shape, causal)

    def build(
        self, d_model: int, n_heads: int, pattern: MaskPattern, **settings: Any
    ) -> MultiHeadAttention:
        layer = self.inner.build(d_model, n_heads, pattern)
        layer.rotary = RotaryEmbedding(d_model // n_heads)
        return layer

    def order_of(self, shape: tuple[int, ...]) -> GenerationOrder:
        return self.inner.order_of(shape)


BORDERS[WithRotary] = [
    Example(WithRotary(Full()), (13,)),
    Example(WithRotary(Full()), (13,), causal=False),
    Example(WithRotary(Relative(max_distance=5, window=4)), (13,)),
    Example(WithRotary(PitchTime(max_distance=5, n_voices=2, max_time=3, n_pitches=6)), (13,)),
    Example(WithRotary(Local1D(block=4, memory=6)), (15,)),
    Example(WithRotary(Local2D(2, 3, 1, 1, "blocks")), (5, 7)),
]
EXAMPLES = all_examples()
CAUSAL = [example for example in EXAMPLES if example.causal]


def layer_of(
    config: AttentionConfig, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool = True
) -> MultiHeadAttention:
    return config.build(d_model, n_heads, config.mask_pattern(shape, causal))


def build(example: Example) -> MultiHeadAttention:
    """One layer of the example in double precision."""
    config, shape, causal = example
    return layer_of(config, D_MODEL, N_HEADS, shape, causal).double()


def token_ids(x: torch.Tensor) -> torch.Tensor:
    """Token ids -1 to 7 that depend on the features alone: pitches, none, and no pitch."""
    first = x.detach()[..., 0].to(torch.bfloat16).double()  # the same in every precision
    return (first * 1000).round().long() % 9 - 1


def context(x: torch.Tensor, padding: torch.Tensor | None = None) -> ForwardContext:
    real = None if padding is None else ~padding
    return ForwardContext(real=real, token_ids=token_ids(x))


def step(
    layer: MultiHeadAttention, x: torch.Tensor, positions: torch.Tensor, cache: LayerCache
) -> torch.Tensor:
    """The step of x [B, P, D] at consecutive positions int64 [P]."""
    now = layer.step_context(positions, cache)
    return layer.step(x, cache, replace(now, token_ids=token_ids(x)))


def length_of(example: Example) -> int:
    return math.prod(example.shape)


def inputs(example: Example, batch: int = BATCH) -> torch.Tensor:
    return torch.randn(batch, length_of(example), D_MODEL, dtype=torch.float64)
