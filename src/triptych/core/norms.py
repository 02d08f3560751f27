"""Normalisation layers, and the residual connection around a sub-layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

NormPosition = Literal["pre", "post"]


@dataclass(frozen=True)
class NormConfig(ABC):
    """Settings of a normalisation layer."""

    epsilon: float = 1e-5
    """Added to the variance, or to the mean square, before the square root."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon must be in (0, 1), got {self.epsilon}")

    @abstractmethod
    def build(self, d_model: int) -> nn.Module:
        """Make the layer: [..., D] -> [..., D]."""


@dataclass(frozen=True)
class LayerNorm(NormConfig):
    """Zero mean and unit variance over the features, then a gain and a bias (Ba et al. 2016)."""

    def build(self, d_model: int) -> nn.Module:
        return nn.LayerNorm(d_model, eps=self.epsilon)


@dataclass(frozen=True)
class RMSNorm(NormConfig):
    """Unit root mean square over the features, then a gain (Zhang and Sennrich 2019, eq. 4)."""

    def build(self, d_model: int) -> nn.Module:
        return nn.RMSNorm(d_model, eps=self.epsilon)


class Residual(nn.Module):
    """Residual connection, dropout and norm around one sub-layer f.

    `post`: norm(x + f(x)), as published (Vaswani et al. 2017, section 3.1). `pre`: x + f(norm(x)),
    which needs no warm-up (Xiong et al. 2020, 2002.04745).
    """

    def __init__(self, norm: nn.Module, norm_position: NormPosition, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = norm_position == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x [..., D], sublayer f: [..., D] -> [..., D]."""
        y = sublayer(self.norm(x) if self.pre_norm else x)
        x = x + self.dropout(y)
        return x if self.pre_norm else self.norm(x)
