"""Layers around attention: normalisation, residual connection, feed-forward layer."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from triptych.types import Checked, OpenUnitInterval, PositiveInt

NormPosition = Literal["pre", "post"]


@dataclass(frozen=True)
class NormConfig(Checked, ABC):
    """Settings of a normalisation layer."""

    epsilon: OpenUnitInterval = 1e-5
    """Added to the variance, or to the mean square, before the square root."""

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


@dataclass(frozen=True)
class FeedForwardConfig(Checked, ABC):
    """Settings of a feed-forward layer."""

    d_ff: PositiveInt = 2048
    """Width of the hidden layer, in features."""

    @abstractmethod
    def build(self, d_model: int) -> nn.Module:
        """Make the layer: [..., D] -> [..., D]."""


@dataclass(frozen=True)
class ReLU(FeedForwardConfig):
    """fc2(relu(fc1(x))), as published (Vaswani et al. 2017, section 3.3)."""

    def build(self, d_model: int) -> nn.Module:
        return FeedForward(d_model, self.d_ff, F.relu)


@dataclass(frozen=True)
class GELU(FeedForwardConfig):
    """fc2(gelu(fc1(x))) (Hendrycks and Gimpel 2016, 1606.08415)."""

    def build(self, d_model: int) -> nn.Module:
        return FeedForward(d_model, self.d_ff, F.gelu)


@dataclass(frozen=True)
class SwiGLU(FeedForwardConfig):
    """fc2(silu(gate(x)) * fc1(x)), without biases (Shazeer 2020, 2002.05202, equation 6).

    It has three matrices: use 2/3 of the d_ff of a plain layer for equal parameters.
    """

    def build(self, d_model: int) -> nn.Module:
        return FeedForward(d_model, self.d_ff, F.silu, gated=True)


class FeedForward(nn.Module):
    """fc2(activation(fc1(x))), or gated fc2(activation(gate(x)) * fc1(x)), without biases."""

    def __init__(
        self, d_model: int, d_ff: int, activation: Callable[[Tensor], Tensor], gated: bool = False
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False) if gated else None
        self.fc1 = nn.Linear(d_model, d_ff, bias=not gated)
        self.fc2 = nn.Linear(d_ff, d_model, bias=not gated)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.fc1(x)  # [..., F]
        if self.gate is None:
            hidden = self.activation(hidden)
        else:
            hidden = self.activation(self.gate(x)) * hidden
        y: Tensor = self.fc2(hidden)  # [..., D]
        return y
