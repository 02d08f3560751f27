"""Which parts of a Transformer a format can represent, and their tables of vectors."""

from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.attention.full import Full
from triptych.core.transformer import Layers, TransformerConfig
from triptych.errors import UserError


def check_parts(config: TransformerConfig, name: str, **allowed: tuple[type, ...]) -> None:
    """Raise UserError for a part of a model that a format cannot represent.

    name: of the format. allowed: classes of the settings by field; attention must be full and each
    layer a block of its own.
    """
    classes = {"attention": (Full,), "second_attention": (Full, type(None)), "depth": (Layers,)}
    for key, kinds in (allowed | classes).items():
        part: Any = getattr(config, key)
        if type(part) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
            raise UserError(
                f"{name} cannot represent model.transformer.{key} {type(part).__name__}; expected "
                f"{expected}, or --format safetensors"
            )


def embedding_weight(embedding: nn.Module) -> Tensor:
    """Return the vectors of an embedding of tokens or of learned positions: [V, D]."""
    module: Any = embedding
    weight: Tensor = module.table.weight.detach()
    return weight


def position_table(positions: nn.Module, length: int) -> Tensor:
    """Return the encodings of positions 0..length-1 in float32: [length, D]."""
    with torch.no_grad():
        encodings: Tensor = positions(torch.arange(length)).float()
    return encodings
