"""Optimisers and schedules, each named by its class path, and weights of accumulated gradients."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from triptych.types import (
    Checked,
    ClosedUnitInterval,
    FractionBelowOne,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)


@dataclass(frozen=True)
class OptimizerConfig(Checked, ABC):
    """Settings of an optimiser."""

    needs_blocks: ClassVar[bool] = False
    """Whether it trains matrices of Transformer blocks, and no model without one."""

    @abstractmethod
    def build(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """Return the optimiser of the trainable parameters; the rate is set before every update."""


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


@dataclass(frozen=True)
class ScheduleConfig(Checked, ABC):
    """Learning rate as a function of the update."""

    needs_end: ClassVar[bool] = False
    """Whether the rate depends on the number of updates of the whole run."""
    needs_width: ClassVar[bool] = False
    """Whether the rate depends on the width of the model."""

    @abstractmethod
    def rate(
        self, peak: float, step: int, *, total_steps: int | None = None, d_model: int | None = None
    ) -> float:
        """Return the learning rate of update `step`; the first update is 1.

        peak: optim.learning_rate. total_steps: updates of the whole run; None if only time limits
        it. d_model: width of the model; None for one without.
        """


@dataclass(frozen=True)
class Warmup(ScheduleConfig):
    """Straight line from 0 to the highest rate over the first updates, and a curve after it."""

    warmup_steps: NonNegativeInt = 400
    """Updates over which the learning rate rises linearly."""

    def rate(
        self, peak: float, step: int, *, total_steps: int | None = None, d_model: int | None = None
    ) -> float:
        if step < self.warmup_steps:
            return peak * step / self.warmup_steps
        return self.after_warmup(peak, step, total_steps)

    @abstractmethod
    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        """Return the learning rate of an update from `warmup_steps` on."""


@dataclass(frozen=True)
class Constant(Warmup):
    """The highest rate after the warm-up."""

    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        return peak


@dataclass(frozen=True)
class InverseSqrt(Warmup):
    """Inverse square root of the update after the warm-up."""

    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        return peak * math.sqrt(max(self.warmup_steps, 1) / step)


@dataclass(frozen=True)
class Cosine(Warmup):
    """Half a cosine wave from the highest rate to the last update (Loshchilov and Hutter 2017)."""

    needs_end: ClassVar[bool] = True

    min_ratio: ClosedUnitInterval = 0.0
    """Last learning rate, as a fraction of the highest."""

    def after_warmup(self, peak: float, step: int, total_steps: int | None) -> float:
        assert total_steps is not None, "see checks.check_settings"
        warmup = self.warmup_steps
        progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        share = 0.5 * (1.0 + math.cos(math.pi * progress))
        return peak * (self.min_ratio + (1.0 - self.min_ratio) * share)


@dataclass(frozen=True)
class Noam(ScheduleConfig):
    """Schedule of Vaswani et al. 2017, section 5.3, equation 3, whose learning_rate is 1.

    learning_rate x d_model^-0.5 x min(step^-0.5, step x warmup_steps^-1.5).
    """

    needs_width: ClassVar[bool] = True

    warmup_steps: PositiveInt = 400
    """Updates over which the learning rate rises linearly."""

    def rate(
        self, peak: float, step: int, *, total_steps: int | None = None, d_model: int | None = None
    ) -> float:
        assert d_model is not None, "a model without a width refuses the schedule"
        warmup = self.warmup_steps
        return peak / math.sqrt(d_model) * min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)


class TargetWeights:
    """Weights of losses that give every target of an update the same weight.

    Each loss is a mean over the targets of one rank and one micro-batch, whose plain average gives
    a target in a small batch more weight. Here a loss is weighted by its targets, relative to those
    of the update's first micro-batch, and `rescale` makes the gradients relative to all targets.
    """

    def __init__(self) -> None:
        self._totals: list[Tensor] = []

    def weight(self, targets: Tensor, total: Tensor) -> Tensor:
        """Return the weight of a mean loss; targets: its own, total: of all ranks (scalars)."""
        self._totals.append(total)
        return targets / self._totals[0].clamp(min=1)

    @torch.no_grad()
    def rescale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients by all targets of the update, in place; begin the next update."""
        totals, self._totals = self._totals, []
        if len(totals) < 2:
            return
        factor = totals[0].clamp(min=1) / torch.stack(totals).sum().clamp(min=1)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor.to(parameter.grad.dtype))


def gradient_norms(model: nn.Module) -> dict[str, Tensor]:
    """Return the L2 norm of all gradients, train/gradient_norm, and of each direct child's.

    The squares of gradient_norm/<name> add up; a shared parameter counts for the first child.
    """
    parts: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            parts.setdefault(name.partition(".")[0], []).append(parameter.grad)
    every = [gradient for part in parts.values() for gradient in part]
    norm = nn.utils.get_total_norm
    each = {f"gradient_norm/{name}": norm(part) for name, part in parts.items()}
    return {"train/gradient_norm": norm(every), **each}


def sharded_like(weight: Tensor, value: Tensor) -> Tensor:
    """Return this process's part of a whole tensor of a weight's shape; all of it for a plain one.

    All processes have the same value, so that nothing is sent.
    """
    if not isinstance(weight, DTensor) or isinstance(value, DTensor):
        return value
    value = value.to(weight.device)
    return distribute_tensor(value, weight.device_mesh, weight.placements, src_data_rank=None)
