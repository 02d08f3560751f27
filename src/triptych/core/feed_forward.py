"""Feed-forward layers: two linear maps around a nonlinearity, plain or gated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from triptych.errors import at_least


@dataclass(frozen=True)
class FeedForwardConfig(ABC):
    """Settings of a feed-forward layer."""

    d_ff: int = 2048
    """Width of the hidden layer, in features."""

    def __post_init__(self) -> None:
        at_least(self, 1, "d_ff")

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
    """fc2(activation(fc1(x))), or gated and without biases fc2(activation(gate(x)) * fc1(x)).

    forward: [..., D] -> [..., D].
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: Callable[[Tensor], Tensor],
        *,
        gated: bool = False,
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
