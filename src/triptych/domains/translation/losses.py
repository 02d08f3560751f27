"""What a translator is trained to make small."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.core.heads import at_least_float32
from triptych.domains.translation.tiled_loss import loss_in_tiles
from triptych.domains.translation.tokenizer import PAD


def training_loss(
    logits: Tensor, expected: Tensor, smoothing: float, consistency: float = 0.0
) -> Tensor:
    """Smoothed nats a real target, and consistency / 2 of the disagreement of two passes.

    logits [B, T, V], or [2 B, T, V] with consistency: one pass and then the other; expected [B, T].
    R-Drop (2106.14448, section 2.1) adds the disagreement to the sum of both passes' nats; here it
    is their mean. Computed in float32 at least, from logits in half precision too; 0 where nothing
    but padding is expected.

    Raises ValueError if the logits are of other positions than what is expected.
    """
    passes = 2 if consistency or len(logits) != len(expected) else 1
    if logits.shape[:-1] != (passes * len(expected), *expected.shape[1:]) or not expected.numel():
        raise ValueError(
            f"logits {list(logits.shape)} for targets {list(expected.shape)}: expected one row of "
            "logits a target and pass, and two passes with consistency"
        )
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        return loss_in_tiles(logits, expected, smoothing, consistency)
    return loss_as_written(logits, expected, smoothing, consistency)


def loss_as_written(
    logits: Tensor, expected: Tensor, smoothing: float, consistency: float = 0.0
) -> Tensor:
    """`training_loss` as its equations stand, and PyTorch's own gradient of it."""
    log_p = at_least_float32(logits).log_softmax(-1)  # [B or 2 B, T, V]
    passes = len(logits) // len(expected)
    loss = smoothed_loss(log_p, expected.repeat(passes, 1), smoothing)
    return loss + consistency / 2 * disagreement(log_p, expected) if consistency else loss


def smoothed_loss(log_p: Tensor, expected: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy in nats, the mean over real targets (1706.03762, section 5.4).

    The share `smoothing` is spread evenly over all types but padding, which is never an answer:
    torch's own label_smoothing would give padding its part. log_p [B, T, V], expected [B, T].
    """
    real = expected != PAD  # [B, T]
    right = log_p.gather(-1, expected.unsqueeze(-1)).squeeze(-1)  # [B, T]
    everywhere = (log_p.sum(-1) - log_p[..., PAD]) / (log_p.shape[-1] - 1)  # [B, T]
    nats = -((1.0 - smoothing) * right + smoothing * everywhere)  # [B, T]
    return nats.masked_fill(~real, 0.0).sum() / real.sum().clamp(min=1)


def disagreement(log_p: Tensor, expected: Tensor) -> Tensor:
    """How far two passes' distributions lie apart, in nats a real target: [2 B, T, V] -> [].

    The mean of both Kullback-Leibler divergences (Liang et al. 2021, R-Drop, 2106.14448, section
    2.1); the second half of the rows holds the second pass; expected [B, T].
    """
    first, second = log_p.chunk(2)  # 2 x [B, T, V]
    both_ways = ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2  # [B, T]
    real = expected != PAD  # [B, T]
    return both_ways.masked_fill(~real, 0.0).sum() / real.sum().clamp(min=1)
