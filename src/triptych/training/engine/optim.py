"""Optimisers, each named by its class path; Muon is in muon.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from triptych.types import Checked, FractionBelowOne, NonNegativeFloat, PositiveFloat


@dataclass(frozen=True)
class OptimizerConfig(Checked, ABC):
    """Settings of an optimiser."""

    needs_blocks: ClassVar[bool] = False
    """Whether it trains matrices of Transformer blocks, and no model without one."""

    def missing(self) -> str | None:
        """Return what the optimiser needs and this machine does not have; None for nothing."""
        return None

    @abstractmethod
    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimiser of the module's trainable parameters.

        The learning rate is replaced before every update.
        """


@dataclass(frozen=True)
class Adam(OptimizerConfig):
    """Adam without weight decay (Kingma and Ba 2015)."""

    betas: tuple[FractionBelowOne, FractionBelowOne] = (0.9, 0.98)
    """Decay of Adam's two moving averages, per update."""
    epsilon: PositiveFloat = 1e-9
    """Added to Adam's denominator."""

    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        groups = decay_groups(trainable(module), 0.0)
        return torch.optim.Adam(groups, **self.arguments(module, learning_rate))

    def arguments(self, module: nn.Module, learning_rate: float) -> dict[str, Any]:
        """Return what PyTorch's Adam and AdamW take besides the parameters."""
        fused = all(each.device.type in ("cuda", "cpu") for each in trainable(module))
        return {"lr": learning_rate, "betas": self.betas, "eps": self.epsilon, "fused": fused}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: NonNegativeFloat = 0.0
    """Decay of matrices per update, times the learning rate; biases and norms have none."""

    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        groups = decay_groups(trainable(module), self.weight_decay)
        return torch.optim.AdamW(groups, **self.arguments(module, learning_rate))


def trainable(module: nn.Module) -> list[Tensor]:
    """Return the parameters of a module that need a gradient, each once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def decay_groups(parameters: Iterable[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups: those of two or more axes with the decay, the others with none."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for parameter in parameters:
        (matrices if parameter.ndim >= 2 else others).append(parameter)
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
