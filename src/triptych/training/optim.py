"""Optimiser and learning rate: what one update does, and the rate as a function of its number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from triptych.training import muon


@dataclass(frozen=True)
class OptimConfig:
    """Optimiser, warm-up and the course of the learning rate."""

    optimizer: Literal["adamw", "adam", "muon"] = "adamw"
    """AdamW (decay apart from the gradient), plain Adam (no decay), or Muon for the matrices of the
    blocks and AdamW for all else."""
    learning_rate: float = 3e-4
    """Highest learning rate, at the end of the warm-up; for noam a factor, 1 as published."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of Adam's two running means, per update."""
    epsilon: float = 1e-9
    """Added to Adam's denominator."""
    weight_decay: float = 0.0
    """Decay of matrices per update, times the learning rate; biases and norms never decay."""
    schedule: Literal["inverse_sqrt", "cosine", "constant", "noam"] = "inverse_sqrt"
    """Learning rate after the warm-up; cosine falls until the last step, noam is Vaswani's."""
    warmup_steps: int = 400
    """Updates over which the learning rate rises in a straight line."""
    min_lr_ratio: float = 0.0
    """Where cosine ends, as a fraction of the highest learning rate."""
    ema_decay: float = 0.0
    """Share of the weights' running mean that stays per update, such as 0.999, which averages about
    the last 1,000; validations and best.ckpt take the mean; 0 for none."""

    def __post_init__(self) -> None:
        """Raise ValueError with a sentence for values that cannot be meant."""
        if self.optimizer not in ("adamw", "adam", "muon"):
            raise ValueError(f"optimizer is {self.optimizer!r}; allowed are adamw, adam and muon.")
        if self.schedule not in ("inverse_sqrt", "cosine", "constant", "noam"):
            raise ValueError(
                f"schedule is {self.schedule!r}; "
                "allowed are inverse_sqrt, cosine, constant and noam."
            )
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be above 0.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}; two numbers from 0 to below 1 are needed.")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be above 0.")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay is {self.weight_decay}; it must not be negative.")
        if self.optimizer == "adam" and self.weight_decay:
            raise ValueError(
                f"weight_decay is {self.weight_decay} with optimizer adam, which has none; "
                "use optimizer adamw."
            )
        if self.warmup_steps < 0 or (self.schedule == "noam" and self.warmup_steps == 0):
            least = 1 if self.schedule == "noam" else 0
            raise ValueError(
                f"warmup_steps is {self.warmup_steps}; it must be at least {least} "
                f"with schedule {self.schedule}."
            )
        if not 0 <= self.min_lr_ratio <= 1:
            raise ValueError(f"min_lr_ratio is {self.min_lr_ratio}; it must be from 0 to 1.")
        if not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay is {self.ema_decay}; it must be from 0 to below 1.")


def learning_rate_at(
    config: OptimConfig, step: int, *, d_model: int, total_steps: int | None = None
) -> float:
    """Learning rate of update `step`, where the first update is 1.

    d_model matters to schedule "noam" only (Vaswani et al. 2017, section 5.3: learning_rate x
    d_model^-0.5 x min(step^-0.5, step x warmup^-1.5)); total_steps to "cosine" only.
    Raises ValueError where cosine is asked without total_steps, or for a step below 1.
    """
    if step < 1:
        raise ValueError(f"step is {step}; updates are counted from 1.")
    warmup = config.warmup_steps
    if config.schedule == "noam":
        return config.learning_rate * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step < warmup:
        return config.learning_rate * step / warmup
    if config.schedule == "constant":
        return config.learning_rate
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * math.sqrt(max(warmup, 1) / step)
    if total_steps is None:
        raise ValueError("schedule cosine needs the number of updates: set trainer.max_steps.")
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    share = 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.learning_rate * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * share)


def build(
    config: OptimConfig, module: nn.Module, *, fused: bool | None = None
) -> torch.optim.Optimizer:
    """Make the optimiser over the module's trainable parameters; decay goes to matrices only.

    A parameter of two or more axes counts as a matrix (weights, embeddings, tables); biases, norms
    and scalars are never decayed. fused: None lets torch's fused kernel run where all parameters
    lie on a device that has one; False forbids it (needed with a gradient scaler and clipping).
    The learning rate set here is replaced before every update, see `learning_rate_at`.
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
