"""The contract's cases: every example of every attention variant, found by itself."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from typing import Any

import torch

import triptych.core.attention as package
from triptych.core.attention.base import AttentionConfig, Example, SelfAttention

D_MODEL, N_HEADS, BATCH = 12, 3, 2


def concrete_subclasses(base: type) -> list[type]:
    found = []
    for subclass in base.__subclasses__():
        found += [subclass, *concrete_subclasses(subclass)]
    return found


def all_examples() -> list[Example]:
    """A new file in core/attention is enough to be here."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return [
        example
        for variant in concrete_subclasses(AttentionConfig)
        for example in variant.examples()
    ]


def name(example: Example) -> str:
    kind = "" if example.causal else "-both-ways"
    return f"{example.config}-{'x'.join(map(str, example.shape))}{kind}"


EXAMPLES = all_examples()
CAUSAL = [example for example in EXAMPLES if example.causal]


def build(example: Example) -> SelfAttention:
    """One layer of the example in double precision."""
    config, shape, causal = example
    layer = config.build(D_MODEL, N_HEADS, shape, causal).double()
    if layer.reads_symbols:
        tell_symbols(layer)
    return layer


def tell_symbols(layer: SelfAttention) -> None:
    """Let every call find the symbols in its input, so that the laws need not know of them.

    Of -1 to 7: pitches, nothing, and symbols that are no pitch.
    """

    def with_symbols(call: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def told(x: torch.Tensor, *rest: Any) -> torch.Tensor:
            first = x.detach()[..., 0].to(torch.bfloat16).double()  # the same in every precision
            symbols = (first * 1000).round().long() % 9 - 1
            return call(x, *rest, symbols=symbols)

        return told

    for path in ("forward", "reference", "prefill", "step", "weights"):
        setattr(layer, path, with_symbols(getattr(layer, path)))


def length_of(example: Example) -> int:
    return math.prod(example.shape)


def inputs(example: Example, batch: int = BATCH) -> torch.Tensor:
    return torch.randn(batch, length_of(example), D_MODEL, dtype=torch.float64)
