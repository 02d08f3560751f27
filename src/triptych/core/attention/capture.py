"""The weights that every attention of a model gave while it ran, to look at.

They come from the definition that judges the fast path (`MultiHeadAttention.weights`,
`CrossAttention.weights`), on the very inputs that the layer got.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.multihead import MultiHeadAttention


@dataclass
class Recording:
    """What was recorded, in the order in which the layers ran."""

    own: list[Tensor] = field(default_factory=list)
    """Of self-attention, a layer each: [B, H, L, L], queries before keys."""
    cross: list[Tensor] = field(default_factory=list)
    """Of cross-attention, a layer each: [B, H, L, K]."""


@contextmanager
def capture_attention(model: nn.Module) -> Iterator[Recording]:
    """Record the weights of all attention below `model` that runs on whole sequences meanwhile.

    Memory grows with the square of the length, for every layer and head: give one block of a large
    model. Not for a model that decodes meanwhile: of a step the cross-attention alone would be
    recorded.
    """
    found = Recording()
    listening: list[tuple[nn.Module, str]] = []

    def listen(layer: MultiHeadAttention | CrossAttention, name: str, kept: list[Tensor]) -> None:
        original = getattr(layer, name)

        def run(*arguments: Any, **options: Any) -> Tensor:
            kept.append(layer.weights(*arguments, **options).detach())
            y: Tensor = original(*arguments, **options)
            return y

        # On the object, where it hides the method of its class until it is deleted again.
        setattr(layer, name, run)
        listening.append((layer, name))

    try:
        for layer in model.modules():
            if isinstance(layer, MultiHeadAttention):
                listen(layer, "forward", found.own)
            elif isinstance(layer, CrossAttention):
                listen(layer, "read", found.cross)
        yield found
    finally:
        for layer, name in listening:
            delattr(layer, name)
