"""How one value is chosen from a distribution: temperature, top-k, top-p."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.core.heads import Head, MixtureOfLogisticsHead, at_least_float32

LOWEST = 1e-20
"""Temperature that is as good as zero: divided by less, logits would be infinite in float32."""


@dataclass(frozen=True)
class Sampling:
    """How boldly to sample; the filters work on the distribution at its temperature."""

    temperature: float = 1.0
    """Divides the logits before the softmax; 0 takes the most probable value."""
    top_k: int | None = None
    """Keep only the k most probable values; null keeps all."""
    top_p: float | None = None
    """Keep the fewest most probable values whose probabilities reach p, 0 to 1; null keeps all."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")


def filtered(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits at the temperature, with -inf where top-k or top-p forbid: [..., V].

    Values of equal probability at the border of top-k stay together, so that the result does not
    depend on the order of a sort. The temperature must be above 0.
    """
    logits = at_least_float32(logits) / max(sampling.temperature, LOWEST)
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        border = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < border, -torch.inf)
    if sampling.top_p is not None and sampling.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        mass = ordered.softmax(-1)
        # The mass before a value decides, so the most probable one always stays
        # (Holtzman et al. 2020, nucleus sampling: the smallest set that reaches p).
        surplus = mass.cumsum(-1) - mass >= sampling.top_p
        logits = logits.masked_fill(surplus.scatter(-1, order, surplus), -torch.inf)
    return logits


def pick(logits: Tensor, sampling: Sampling, generator: torch.Generator | None = None) -> Tensor:
    """One category a row: logits [..., V] -> int64 [...]; never waits for the device."""
    if sampling.temperature == 0:
        return logits.argmax(-1)
    probabilities = filtered(logits, sampling).softmax(-1)
    # The first arrival of independent exponential clocks with these rates.
    waiting = torch.empty_like(probabilities).exponential_(generator=generator)
    return (probabilities / waiting.clamp(min=torch.finfo(waiting.dtype).tiny)).argmax(-1)


def draw(
    head: Head, parameters: Tensor, sampling: Sampling, generator: torch.Generator | None = None
) -> Tensor:
    """One target a position from a head's parameters.

    Raises ValueError for top-k or top-p on a mixture of logistics, which has no list of values
    to cut.
    """
    if isinstance(head, MixtureOfLogisticsHead) and (sampling.top_k or sampling.top_p):
        raise ValueError("top_k and top_p need a categorical output; this model has logistics")
    return head.sample(
        parameters,
        lambda logits: pick(logits, sampling, generator),
        temperature=sampling.temperature,
        generator=generator,
    )
