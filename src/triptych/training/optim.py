"""Optimiser, learning-rate schedule and weights of accumulated gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from triptych.errors import UserError
from triptych.training import muon


@dataclass(frozen=True)
class OptimConfig:
    """Optimiser and learning-rate schedule."""

    optimizer: Literal["adamw", "adam", "muon"] = "adamw"
    """AdamW (decoupled weight decay), Adam (no decay), or Muon for the matrices of the blocks with
    AdamW for all other parameters."""
    learning_rate: float = 3e-4
    """Highest learning rate, at the end of the warm-up; for noam a factor, 1 in the paper."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of Adam's two moving averages, per update."""
    epsilon: float = 1e-9
    """Added to Adam's denominator."""
    weight_decay: float = 0.0
    """Decay of matrices per update, times the learning rate; biases and norms have none."""
    schedule: Literal["inverse_sqrt", "cosine", "constant", "noam"] = "inverse_sqrt"
    """Learning rate after the warm-up; cosine ends at the last step, noam is Vaswani's."""
    warmup_steps: int = 400
    """Updates over which the learning rate rises linearly."""
    min_lr_ratio: float = 0.0
    """Last learning rate of cosine, as a fraction of the highest."""
    ema_decay: float = 0.0
    """Decay of the exponential moving average of the weights per update, such as 0.999;
    validations and best.ckpt use the average; 0 for none."""

    def __post_init__(self) -> None:
        """Raise ValueError for impossible values."""
        if self.optimizer not in ("adamw", "adam", "muon"):
            raise ValueError(f"optimizer is {self.optimizer!r}; allowed are adamw, adam and muon")
        if self.schedule not in ("inverse_sqrt", "cosine", "constant", "noam"):
            raise ValueError(
                f"schedule is {self.schedule!r}; "
                "allowed are inverse_sqrt, cosine, constant and noam"
            )
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be above 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}; two numbers from 0 to below 1 are needed")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be above 0")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay is {self.weight_decay}; it must not be negative")
        if self.optimizer == "adam" and self.weight_decay:
            raise ValueError(
                f"weight_decay is {self.weight_decay} with optimizer adam, which has none; "
                "use optimizer adamw"
            )
        if self.warmup_steps < 0 or (self.schedule == "noam" and self.warmup_steps == 0):
            least = 1 if self.schedule == "noam" else 0
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}; it must be at least {least} "
                f"with schedule {self.schedule}"
            )
        if not 0 <= self.min_lr_ratio <= 1:
            raise ValueError(f"min_lr_ratio is {self.min_lr_ratio}; it must be from 0 to 1")
        if not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay is {self.ema_decay}; it must be from 0 to below 1")


def check_schedule(optim: OptimConfig, *, endless: bool) -> None:
    """Raise UserError for a schedule that needs the number of steps if only time limits the run."""
    if optim.schedule == "cosine" and endless:
        raise UserError(
            "optim.schedule is cosine, which needs an end: set trainer.max_steps or "
            "trainer.max_epochs"
        )


def learning_rate_at(
    config: OptimConfig, step: int, *, d_model: int, total_steps: int | None = None
) -> float:
    """Return the learning rate of update `step`; the first update is 1.

    d_model: for schedule noam only (Vaswani et al. 2017, section 5.3: learning_rate x d_model^-0.5
    x min(step^-0.5, step x warmup^-1.5)). total_steps: for cosine only.
    Raises ValueError for cosine without total_steps and for a step below 1.
    """
    if step < 1:
        raise ValueError(f"step is {step}; updates are counted from 1")
    warmup = config.warmup_steps
    if config.schedule == "noam":
        shape = min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)
        return config.learning_rate / math.sqrt(d_model) * shape
    if step < warmup:
        return config.learning_rate * step / warmup
    if config.schedule == "constant":
        return config.learning_rate
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * math.sqrt(max(warmup, 1) / step)
    if total_steps is None:
        raise ValueError("schedule cosine needs the number of updates: set trainer.max_steps")
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    share = 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.learning_rate * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * share)


def build(
    config: OptimConfig, module: nn.Module, *, fused: bool | None = None
) -> torch.optim.Optimizer:
    """Return the optimiser of the module's trainable parameters.

    Parameters of two or more axes have weight decay; biases, norms and scalars have none.
    fused: None uses torch's fused kernel if all devices have one; False forbids it (needed for
    clipping with a gradient scaler). The learning rate is replaced before every update.
    """
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trainable if parameter.ndim >= 2]
    others = [parameter for parameter in trainable if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if fused is None:
        fused = all(
            parameter.device.type in ("cuda", "cpu") and parameter.is_floating_point()
            for parameter in trainable
        )
    if config.optimizer == "muon":
        hidden = muon.hidden_matrices(module)
        taken = set(hidden)
        groups[0]["params"] = [parameter for parameter in matrices if parameter not in taken]
        return muon.MuonAdamW(
            hidden,
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            momentum=0.95,
            weight_decay=config.weight_decay,
            betas=config.betas,
            eps=config.epsilon,
            fused=fused,
        )
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        fused=fused,
    )


class Accumulation:
    """Weights of micro-batches that give every target of an update the same weight.

    Lightning averages the mean losses of micro-batches, which gives a target in a small micro-batch
    more weight. Here each loss has the weight of its targets, relative to the first micro-batch,
    and `rescale` divides the sum of gradients by all targets of the update.
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self._targets: Tensor | None = None

    def weight(self, targets: Tensor) -> Tensor:
        """Return the weight of a micro-batch's mean loss; targets: scalar number of targets."""
        if self._first is None or self._targets is None:
            self._first = targets.clamp(min=1)
            self._targets = torch.zeros_like(targets)
        self._targets = self._targets + targets
        return targets / self._first

    @torch.no_grad()
    def rescale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the summed gradients by all targets, in place, and begin the next update."""
        if self._first is None or self._targets is None:
            return
        factor = self._first / self._targets.clamp(min=1)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor.to(parameter.grad.dtype))
        self._first = self._targets = None
