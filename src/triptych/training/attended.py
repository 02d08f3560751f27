"""Which layer and which head of a model are looked at."""

from __future__ import annotations

from triptych.errors import UserError


def check_layer_and_head(
    layer: int | None, head: int | None, *, n_layers: int, n_heads: int
) -> None:
    """Raise UserError where a model of so many layers and heads has not these, counted from 1.

    None stands for a default and is always there.
    """
    for name, value, most in (("layer", layer, n_layers), ("head", head, n_heads)):
        if value is not None and not 1 <= value <= most:
            raise UserError(f"{name} must be from 1 to {most}, got {value}")
