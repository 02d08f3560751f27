"""One update of the weights: the optimiser, its rate, the clipping of its gradients."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision, Precision
from pytorch_lightning.utilities import GradClipAlgorithmType

from triptych.errors import UserError
from triptych.training import metric_sums as sums
from triptych.training import optim
from triptych.training.accumulation import Accumulation
from triptych.training.optim import OptimConfig


def check_schedule(optim: OptimConfig, *, endless: bool) -> None:
    """Raise UserError for a schedule that needs an end where only time limits the run."""
    if optim.schedule == "cosine" and endless:
        raise UserError(
            "optim.schedule is cosine, which needs an end: set trainer.max_steps or "
            "trainer.max_epochs."
        )


class Updated(pl.LightningModule):
    """A module whose parameters are updated as its settings say.

    optim: optimiser and schedule.
    d_model: width of the model, for the "noam" schedule.
    """

    def __init__(self, optim: OptimConfig, d_model: int) -> None:
        super().__init__()
        self.optim = optim
        self.d_model = d_model
        self.accumulation = Accumulation()
        self._given: list[dict[str, Any]] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make the optimiser; the rate is set before every update, so no scheduler has a state."""
        scaled = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        # Lightning cannot clip gradients that a fused optimiser unscales by itself.
        optimizer = optim.build(self.optim, self, fused=False if scaled else None)
        self._given = [
            {name: value for name, value in group.items() if name != "params"}
            for group in optimizer.param_groups
        ]
        return optimizer

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, in bf16 beside a fused optimiser too.

        Lightning refuses that pair under autocast because a fused optimiser would unscale fp16
        gradients only after the clipping; in bf16 there is no scaler, so there is nothing to undo.
        """
        plugin = self.trainer.precision_plugin
        if isinstance(plugin, MixedPrecision) and plugin.scaler is None and gradient_clip_val:
            Precision.clip_gradients(
                plugin,
                optimizer,
                gradient_clip_val,
                GradClipAlgorithmType(gradient_clip_algorithm or "norm"),
            )
            return
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Finish accumulated gradients and set the update's rate, a function of its number."""
        self.accumulation.settle(self.parameters())
        rate = self.learning_rate(self.trainer.global_step + 1)
        for group in optimizer.param_groups:
            group["lr"] = rate

    def learning_rate(self, step: int) -> float:
        """Return the rate of update `step` (the first is 1) under this trainer's settings."""
        return optim.learning_rate_at(
            self.optim, step, d_model=self.d_model, total_steps=self.total_steps()
        )

    def total_steps(self) -> int | None:
        """Return the updates that the whole run makes, or None where only time limits it."""
        estimate = self.trainer.estimated_stepping_batches
        return int(estimate) if sums.is_finite(estimate) else None

    def on_fit_start(self) -> None:
        """Refuse a cosine schedule without an end before time is spent."""
        check_schedule(self.optim, endless=self.total_steps() is None)

    def take_given_settings(self) -> None:
        """Undo what a checkpoint brought along: what counts is what this start was given."""
        for group, given in zip(self.trainer.optimizers[0].param_groups, self._given, strict=True):
            group.update(given)
