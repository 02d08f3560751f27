"""Capture of the attention weights of a model while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.multihead import MultiHeadAttention


@dataclass
class CapturedAttention:
    """Attention weights, in the order in which the layers ran."""

    self_attention: list[Tensor] = field(default_factory=list)
    """Of self-attention: [B, H, L, L] per layer, queries before keys."""
    cross: list[Tensor] = field(default_factory=list)
    """Of cross-attention: [B, H, L, K] per layer."""


@contextmanager
def capture_attention(model: nn.Module) -> Iterator[CapturedAttention]:
    """Capture the weights of all attention below `model` in passes over whole sequences.

    The weights come from the definition (`MultiHeadAttention.weights`, `CrossAttention.weights`).
    Memory grows with the square of the length for every layer and head: give one block of a large
    model. Decoding steps are not for capture: they would give cross-attention alone.
    """
    captured = CapturedAttention()

    def capture(layer: Any, arguments: tuple[Any, ...]) -> None:
        is_cross = isinstance(layer, CrossAttention)
        kept = captured.cross if is_cross else captured.self_attention
        kept.append(layer.weights(*arguments[:2]).detach())

    handles = [
        layer.register_forward_pre_hook(capture)
        for layer in model.modules()
        if isinstance(layer, MultiHeadAttention | CrossAttention)
    ]
    try:
        yield captured
    finally:
        for handle in handles:
            handle.remove()
