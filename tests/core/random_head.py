"""Random weights in place of those that start at zero, through which a new model ignores inputs."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from triptych.core.attention.cross import CrossAttention
from triptych.core.heads import CategoricalHead
from triptych.core.models.base import Conditioner

Module = TypeVar("Module", bound=nn.Module)


def with_random_head(module: Module) -> Module:
    """Give heads, cross-attention and conditioners random outputs, so that predictions differ."""
    for part in module.modules():
        if isinstance(part, CategoricalHead) and not part.logits.weight.any():
            nn.init.xavier_uniform_(part.logits.weight)
        if isinstance(part, CrossAttention) and not part.out_proj.weight.any():
            nn.init.xavier_uniform_(part.out_proj.weight)
        if isinstance(part, Conditioner) and hasattr(part, "proj"):
            nn.init.xavier_uniform_(part.proj.weight)
    return module
