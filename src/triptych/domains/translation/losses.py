"""What a translator is trained to make small."""

from __future__ import annotations

from torch import Tensor

from triptych.domains.translation.tokenizer import PAD


def smoothed_loss(log_p: Tensor, expected: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy in nats, the mean over real targets (1706.03762, section 5.4).

    The share `smoothing` is spread evenly over all types but padding, which is never an answer:
    torch's own label_smoothing would give padding its part. log_p [B, T, V], expected [B, T].
    """
    real = expected != PAD  # [B, T]
    right = log_p.gather(-1, expected.unsqueeze(-1)).squeeze(-1)  # [B, T]
    everywhere = (log_p.sum(-1) - log_p[..., PAD]) / (log_p.shape[-1] - 1)  # [B, T]
    nats = -((1.0 - smoothing) * right + smoothing * everywhere)  # [B, T]
    return nats.masked_fill(~real, 0.0).sum() / real.sum()


def disagreement(log_p: Tensor, expected: Tensor) -> Tensor:
    """How far two passes' distributions lie apart, in nats a real target: [2 B, T, V] -> [].

    The mean of both Kullback-Leibler divergences (Liang et al. 2021, R-Drop, 2106.14448, section
    2.1); the second half of the rows holds the second pass; expected [B, T].
    """
    first, second = log_p.chunk(2)  # 2 x [B, T, V]
    both_ways = ((first.exp() - second.exp()) * (first - second)).sum(-1) / 2  # [B, T]
    real = expected != PAD  # [B, T]
    return both_ways.masked_fill(~real, 0.0).sum() / real.sum()
