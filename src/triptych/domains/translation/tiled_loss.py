"""The training loss of a translator over rows that stay in the cache, its gradient with it.

As its equations stand (`losses.loss_as_written`) every operation walks through all logits in
float32, 44 MB for 2,000 tokens of 5,500 types, and the softmax is kept for the backward pass beside
them. Here a tile of rows goes from its logits to its part of the gradient at once, and what is kept
is that gradient, in the logits' own precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from triptych.core.heads import at_least_float32
from triptych.domains.translation.tokenizer import PAD

ROOM = 2**19
"""Logits of a tile, 2 MiB in float32.

Loss and gradient of 2,048 targets of 5,500 types, two cores with AMX, milliseconds, float32 and
bfloat16: as written 43 and 56; in tiles of 2**17 logits 32 and 27, of 2**18 to 2**20 26 to 28 and
22 to 25, of 2**21 30 and 24. With consistency (1,024 targets, two passes) 92 and 117 as written, 54
and 55 in tiles. A step of the Multi30k recipe of that size takes 370 and 250 without it.
"""


def loss_in_tiles(
    logits: Tensor, expected: Tensor, smoothing: float, consistency: float = 0.0
) -> Tensor:
    """`losses.training_loss`, the same numbers: logits [B or 2 B, T, V], expected [B, T] -> []."""
    keep = torch.is_grad_enabled() and logits.requires_grad
    loss: Tensor = _Tiled.apply(logits, expected, smoothing, consistency, keep)
    return loss


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        expected: Tensor,
        smoothing: float,
        consistency: float,
        keep: bool,
    ) -> Tensor:
        types = logits.shape[-1]
        passes = len(logits) // len(expected)
        rows = logits.reshape(passes, -1, types)  # [P, N, V]
        targets = expected.reshape(-1, 1)  # [N, 1]
        real = targets != PAD
        wide = torch.promote_types(logits.dtype, torch.float32)
        share = real.to(wide) / real.sum().clamp(min=1)  # [N, 1]
        # In float16 small slopes would be lost before a scaler comes to lift them.
        kept = wide if logits.dtype == torch.float16 else logits.dtype
        gradient = rows.new_empty(rows.shape, dtype=kept) if keep else None
        total = torch.zeros((), dtype=torch.float64)
        length = max(1, ROOM // (passes * types))
        for first in range(0, len(targets), length):
            part = slice(first, first + length)
            log_p = at_least_float32(rows[:, part]).log_softmax(-1)  # [P, n, V]
            nats, slope = _tile(log_p, targets[part], smoothing, consistency)
            total += (nats * share[part]).masked_fill_(~real[part], 0.0).sum()
            if gradient is not None:
                gradient[:, part] = slope.mul_(share[part])
        if gradient is not None:
            ctx.save_for_backward(gradient.view_as(logits))
        ctx.dtype = logits.dtype
        return total.to(wide)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        # Usually 1, and one walk less; not in place, for a second backward pass reads it again.
        scaled = gradient if d_loss.item() == 1.0 else gradient * d_loss
        return scaled.to(ctx.dtype), None, None, None, None


def _tile(
    log_p: Tensor, targets: Tensor, smoothing: float, consistency: float
) -> tuple[Tensor, Tensor]:
    """Nats [n, 1] of each target and their slope by the logits [P, n, V]; log_p is used up."""
    passes, _, types = log_p.shape
    rest = smoothing / (types - 1)
    targets = targets.expand(passes, -1, 1)  # [P, n, 1]
    everywhere = log_p.sum(-1, keepdim=True) - log_p[..., PAD, None]  # [P, n, 1]
    nats = -((1.0 - smoothing) * log_p.gather(-1, targets) + rest * everywhere).mean(0)  # [n, 1]
    apart = log_p[0] - log_p[1] if consistency else None  # [n, V]
    p = log_p.exp_()
    of_divergences = None
    if apart is not None:
        divergences, of_divergences = _divergences(p, apart)
        nats += consistency / 4 * divergences
    # The softmax less the distribution that is wanted.
    slope = p.sub_(rest)
    slope[..., PAD] += rest
    slope.scatter_add_(-1, targets, slope.new_full((), smoothing - 1.0).expand(targets.shape))
    if passes > 1:
        slope /= passes
    if of_divergences is not None:
        slope.add_(of_divergences, alpha=consistency / 4)
    return nats, slope


def _divergences(p: Tensor, apart: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of two passes' divergences, one way and the other, and its slope by their logits.

    p [2, n, V], apart = log p[0] - log p[1] [n, V] -> [n, 1], [2, n, V].
    """
    signed = torch.stack([apart, -apart])  # log of a pass over the other: [2, n, V]
    one_way = (p * signed).sum(-1, keepdim=True)  # [2, n, 1]
    return one_way.sum(0), signed.sub_(one_way - 1.0).mul_(p).sub_(p.flip(0))
