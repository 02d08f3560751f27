"""What the kernels with a backward pass of their own share: room, precision, what they keep."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

import torch
from torch import Tensor

KEPT = 2**26
"""Bytes of weights that one call on a CPU keeps for its backward pass; see `to_keep`.

Relative attention, forward and backward, 8 heads of 64, two cores with AVX512-BF16, milliseconds
without and with them: float32 L 1024 52 / 43, 8 x 512 106 / 85 (half of them fit), L 2048 178 / 157
(nearly all); bfloat16 L 1024 27 / 22, 8 x 512 56 / 47. With dropout the weights that are left are
kept beside all of them: 0.93 to 0.96 of the time in bfloat16, the same in float32.
"""


def room(like: Tensor) -> int:
    """Weights of a tile at most, so that they stay in a core's cache."""
    return (2**21 if like.device.type == "cpu" else 2**28) // like.element_size()


def to_keep(like: Tensor) -> int:
    """Bytes of weights that a call keeps now: none where no backward pass will come.

    And none but on a CPU: on a GPU, where a tile is larger than all that, it was not measured.
    """
    return KEPT if torch.is_grad_enabled() and like.device.type == "cpu" else 0


def as_given(like: Tensor) -> AbstractContextManager[object]:
    """Without autocast: what is kept must have the precision that the backward pass computes in.

    Autocast's softmax is float32 on a GPU for bfloat16 inputs.
    """
    kind = like.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def like_projected(x: Tensor) -> Tensor:
    """Empty [B, H, L, E] whose memory is [B, L, H, E], so that joining the heads copies nothing."""
    batch, heads, length, width = x.shape
    return x.new_empty(batch, length, heads, width).transpose(1, 2)  # [B, H, L, E]


def by_part(saved: Sequence[Tensor], numbers: Sequence[int]) -> list[list[Tensor]]:
    """The weights that were kept of each part, of all that were saved in a row."""
    weights = iter(saved)
    return [list(islice(weights, n)) for n in numbers]


def wide_dtype(x: Tensor) -> torch.dtype:
    """In which precision parts of a gradient of x add up."""
    return torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
