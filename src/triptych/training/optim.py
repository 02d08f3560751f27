"""Optimiser, learning-rate schedule and weights of accumulated gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import torch
from torch import Tensor, nn

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
        if self.optimizer == "adam" and self.weight_decay:
            raise ValueError(
                f"weight_decay is {self.weight_decay} with optimizer adam, which has none; "
                "use optimizer adamw"
            )
        least_warmup = 1 if self.schedule == "noam" else 0
        for name, fits, expected in (
            ("learning_rate", 0 < self.learning_rate < math.inf, "above 0"),
            ("betas", all(0 <= beta < 1 for beta in self.betas), "from 0 to below 1"),
            ("epsilon", self.epsilon > 0, "above 0"),
            ("weight_decay", self.weight_decay >= 0, "at least 0"),
            ("warmup_steps", self.warmup_steps >= least_warmup, f"at least {least_warmup}"),
            ("min_lr_ratio", 0 <= self.min_lr_ratio <= 1, "from 0 to 1"),
            ("ema_decay", 0 <= self.ema_decay < 1, "from 0 to below 1"),
        ):
            if not fits:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {expected}")


def learning_rate_at(
    config: OptimConfig, step: int, *, d_model: int, total_steps: int | None = None
) -> float:
    """Return the learning rate of update `step`; the first update is 1.

    d_model: for schedule noam only (Vaswani et al. 2017, section 5.3: learning_rate x d_model^-0.5
    x min(step^-0.5, step x warmup^-1.5)). total_steps: for cosine only.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "noam":
        return peak / math.sqrt(d_model) * min(1 / math.sqrt(step), step / math.sqrt(warmup) ** 3)
    if step < warmup:
        return peak * step / warmup
    if config.schedule == "inverse_sqrt":
        return peak * math.sqrt(max(warmup, 1) / step)
    if config.schedule == "cosine":
        assert total_steps is not None, "see checks.check_settings"
        progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        share = 0.5 * (1.0 + math.cos(math.pi * progress))
        return peak * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * share)
    if config.schedule == "constant":
        return peak
    assert_never(config.schedule)


def build(config: OptimConfig, module: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser of the module's trainable parameters.

    Parameters of two or more axes have weight decay; biases, norms and scalars have none. The
    learning rate is replaced before every update.
    """
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    hidden = muon.hidden_matrices(module) if config.optimizer == "muon" else []
    taken = set(hidden)
    rest = [parameter for parameter in trainable if parameter not in taken]
    groups = [
        {"params": [p for p in rest if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    adam: dict[str, Any] = {
        "lr": config.learning_rate,
        "betas": config.betas,
        "eps": config.epsilon,
        "fused": all(parameter.device.type in ("cuda", "cpu") for parameter in trainable),
    }
    if config.optimizer == "muon":
        return muon.MuonAdamW(hidden, groups, weight_decay=config.weight_decay, **adam)
    kinds: dict[str, type[torch.optim.Optimizer]] = {
        "adamw": torch.optim.AdamW,
        "adam": torch.optim.Adam,
    }
    return kinds[config.optimizer](groups, **adam)


class TargetWeights:
    """Weights of losses that give every target of an update the same weight.

    Each loss is a mean over the targets of one rank and one micro-batch. DDP averages gradients
    over ranks and Lightning averages losses over micro-batches, which gives a target in a small
    batch more weight. Here a loss is weighted by its targets, relative to those of the update's
    first micro-batch on all ranks, and `rescale` makes the gradients relative to all targets.
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
    """Return the L2 norm of all gradients, train/gradient_norm, and of each part's.

    The parts are the model's direct children, gradient_norm/<name>; a parameter that two of them
    share counts for the first. Their squares add up to the square of the whole.
    """
    parts: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            parts.setdefault(name.partition(".")[0], []).append(parameter.grad)
    every = [gradient for part in parts.values() for gradient in part]
    norm = nn.utils.get_total_norm
    each = {f"gradient_norm/{name}": norm(part) for name, part in parts.items()}
    return {"train/gradient_norm": norm(every), **each}
