"""Weights for output heads, which start at zero: a model with such a head predicts nothing."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from triptych.core.heads import CategoricalHead

Module = TypeVar("Module", bound=nn.Module)


def with_random_head(module: Module) -> Module:
    """Give every categorical head of the module random weights, so that its predictions differ."""
    for part in module.modules():
        if isinstance(part, CategoricalHead) and not part.logits.weight.any():
            nn.init.xavier_uniform_(part.logits.weight)
    return module
