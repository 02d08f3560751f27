"""The parts of a block that look at one position: feed-forward, and the order of the norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

Activation = Literal["relu", "gelu"]
NormPlace = Literal["pre", "post"]


class FeedForward(nn.Module):
    """Two linear maps with a nonlinearity between (Vaswani et al. 2017, section 3.3).

    forward: [..., D] -> [..., D].
    """

    def __init__(self, d_model: int, d_ff: int, activation: Activation = "relu") -> None:
        super().__init__()
        self.widen = nn.Linear(d_model, d_ff)
        self.narrow = nn.Linear(d_ff, d_model)
        self.activation: Callable[[Tensor], Tensor] = F.relu if activation == "relu" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.narrow(self.activation(self.widen(x)))
        return y


class Residual(nn.Module):
    """The skip, the dropout and the norm around one sub-layer.

    `post`: norm(x + f(x)), as published (Vaswani et al. 2017, section 3.1). `pre`: x + f(norm(x)),
    which trains without warm-up trouble (Xiong et al. 2020, 2002.04745).
    """

    def __init__(self, d_model: int, norm: NormPlace, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.pre = norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer gets."""
        y: Tensor = self.norm(x) if self.pre else x
        return y

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """The block's stream once the sub-layer has answered y to x."""
        x = x + self.dropout(y)
        return x if self.pre else self.norm(x)


def initialise(module: nn.Module) -> None:
    """Glorot-uniform matrices and zero biases for every linear map below `module`."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
