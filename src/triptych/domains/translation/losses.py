"""The training objective: label-smoothed cross-entropy."""

from __future__ import annotations

from torch import Tensor

from triptych.core.heads import at_least_float32
from triptych.domains.translation.tokenizer import PAD


def smoothed_cross_entropy(logits: Tensor, expected: Tensor, smoothing: float) -> Tensor:
    """Label-smoothed cross-entropy in nats, averaged over the targets that are not padding.

    The share `smoothing` of each target distribution is uniform over all types but padding
    (1706.03762, section 5.4); `F.cross_entropy` would give padding its share too.

    logits [B, T, V], expected int64 [B, T] -> scalar, float32 or wider; 0 if all targets are
    padding. Raises ValueError if the shapes of logits and targets disagree.
    """
    if logits.shape[:-1] != expected.shape:
        raise ValueError(
            f"logits have shape {list(logits.shape)} and targets {list(expected.shape)}; expected "
            "one row of logits for each target"
        )
    log_p = at_least_float32(logits).log_softmax(-1)  # [B, T, V]
    target_log_p = log_p.gather(-1, expected.unsqueeze(-1)).squeeze(-1)  # [B, T]
    uniform_log_p = (log_p.sum(-1) - log_p[..., PAD]) / (log_p.shape[-1] - 1)  # [B, T]
    nats = -((1.0 - smoothing) * target_log_p + smoothing * uniform_log_p)  # [B, T]
    real = expected != PAD  # [B, T]
    return nats.masked_fill(~real, 0.0).sum() / real.sum().clamp(min=1)
