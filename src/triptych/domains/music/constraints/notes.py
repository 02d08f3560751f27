"""Constraints on the pitches of new notes, for tokens of any kind."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from triptych.domains.music.constraints.options import ConstraintOptions, parse_scale
from triptych.errors import UserError


def permitted_pitches(
    known: Iterable[int], options: ConstraintOptions, span: tuple[int, int] | None, whose: str
) -> set[int]:
    """Return the pitches of a tokenizer that are in the scale and in a range.

    span: lowest and highest pitch, None for all. whose: the name of what has the range. Raises
    UserError where no pitch is left.
    """
    low, high = span or (min(known), max(known))
    inside = {pitch for pitch in known if low <= pitch <= high}
    if not inside:
        raise UserError(
            f"ranges gives {whose} the pitches {low}-{high}, of which this model has none; it has "
            f"{min(known)} to {max(known)}"
        )
    classes = None if options.scale is None else parse_scale(options.scale)
    permitted = {pitch for pitch in inside if classes is None or pitch % 12 in classes}
    if not permitted:
        raise UserError(
            f"no pitch from {low} to {high}, the range of {whose}, is in the scale {options.scale}"
        )
    return permitted


def at_the_end(values: Tensor, marked: Tensor) -> Tensor:
    """Return the marked values of each row in their order at its end, after fillers of -1.

    values int64 [B, t], marked bool [B, t] -> [B, t].
    """
    batch, length = values.shape
    later = marked.long().flip(1).cumsum(1).flip(1)  # marked values from each one on
    column = torch.where(marked, length - later, length)  # the others into one column more
    ordered = values.new_full((batch, length + 1), -1)
    return ordered.scatter(1, column, values)[:, :length]
