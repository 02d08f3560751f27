"""What a step of decoding takes from its position alone, made for many positions at once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor


class Place(NamedTuple):
    """What a step takes from its position alone; layers of one kind share it."""

    slot: Tensor
    """Where the positions' keys are kept: int64 [P]."""
    read: Tensor | None
    """Slots that are read: int64 [W]; None for all."""
    mask: Tensor | None
    """Added to the logits: [P, W], 0 where a slot is visible and -inf where not; None where all
    slots that are read are visible."""
    relation: tuple[Tensor, ...]
    """Relative index of the queries and the slots: int64 [P, W] a term."""
    start: int | None = None
    """The first slot as a number, where one position's keys go and no device is waited for."""
    n_read: int | None = None
    """How many slots are read, the first ones and no others, where all of them are visible and no
    device is waited for."""


StepContexts = dict[Hashable, Place | None]
"""The context of a step for each attention pattern, by `SelfAttention.kind`."""


def apart(together: Place) -> list[Place]:
    """One place for each of R positions, made together as [R, 1, ...].

    On a CPU a place whose visible slots are the first ones says how many, in place of a mask: to
    read them alone takes 2/3 of the time of attention to a few slots more under a mask with 8 rows
    (8 heads of 32, 128 positions), 0.8 to 0.95 with 32 rows (8 heads of 64).
    """
    slot, read, mask, relation = together.slot, together.read, together.mask, together.relation
    nothing = [None] * slot.shape[0]
    on_cpu = slot.device.type == "cpu"  # another device would have to be waited for
    leading = _leading(mask) if on_cpu and read is None and mask is not None else nothing
    places = [
        Place(*parts)
        for parts in zip(
            slot.unbind(0),
            nothing if read is None else read.unbind(0),
            nothing if mask is None else mask.unbind(0),
            zip(*(term.unbind(0) for term in relation), strict=True)
            if relation
            else [()] * len(slot),
            slot.flatten().tolist() if on_cpu else nothing,
            strict=True,
        )
    ]
    return [
        place if count is None else _first_slots(place, count)
        for place, count in zip(places, leading, strict=True)
    ]


def _leading(mask: Tensor) -> list[int | None]:
    """For each of masks [R, 1, W]: how many slots are visible, where they are the first ones."""
    visible = mask == 0
    counts = visible.sum(-1, keepdim=True)  # [R, 1, 1]
    first = torch.arange(mask.shape[-1], device=mask.device) < counts  # [R, 1, W]
    alike = (visible == first).flatten(1).all(1)  # [R]
    pairs = zip(counts.flatten().tolist(), alike.tolist(), strict=True)
    return [count if leads else None for count, leads in pairs]


def _first_slots(place: Place, count: int) -> Place:
    relation = tuple(term[..., :count] for term in place.relation)
    return place._replace(mask=None, relation=relation, n_read=count)
