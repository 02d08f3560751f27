"""Exponential moving average of the weights, for validation and for use after training.

An average of the last updates scores better than any single one (Polyak & Juditsky 1992; Vaswani
et al. 2017, section 6.1). In checkpoints "state_dict" contains the average, and
checkpoint["average"] the training weights: {"updates": int, "weights": {...}}.
"""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from triptych.training.engine.optim import sharded_like

AVERAGE = "average"
"""Key of the checkpoint for the training weights and the number of updates."""


def decay_at(decay: float, update: int) -> float:
    """Return the decay of update number `update` (the first is 1): min(decay, (1 + n) / (10 + n)).

    The lower decay of the first updates reduces the weight of the initialisation.
    """
    return min(decay, (1 + update) / (10 + update))


class WeightAverage(Callback):
    """Keep average = d x average + (1 - d) x weights over the updates, d as in `decay_at`.

    Averaged are all trained parameters, in float32 at least, from the initial weights or the
    checkpoint on; ranks have equal averages. Validations, generation and samples use the average.

    Lightning's WeightAveraging restores the training weights before `generation_metrics` and
    `log_samples`, and not at all after an exception in a validation.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._average: dict[nn.Parameter, Tensor] = {}
        self._training_weights: list[Tensor] | None = None
        self._loaded: dict[str, Any] = {"updates": 0, "average": {}}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._loaded = checkpoint.get(AVERAGE, self._loaded)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.updates, average = self._loaded["updates"], self._loaded["average"]
        self._average = {
            parameter: sharded_like(parameter, average.get(name, parameter.detach())).to(
                parameter.device, torch.promote_types(parameter.dtype, torch.float32), copy=True
            )
            for name, parameter in pl_module.named_parameters()
            if parameter.requires_grad
        }
        self._loaded = {"updates": 0, "average": {}}

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        if not pl_module.whole_step:
            return
        self.updates += 1
        update = get_ema_multi_avg_fn(decay_at(self.decay, self.updates))
        weights = [weight.detach().to(average.dtype) for weight, average in self._average.items()]
        update(list(self._average.values()), weights, self.updates)

    @torch.no_grad()
    def on_validation_start(self, *_: Any) -> None:
        self._training_weights = [parameter.detach().clone() for parameter in self._average]
        for parameter, average in self._average.items():
            parameter.copy_(average)

    @torch.no_grad()
    def on_validation_end(self, *_: Any) -> None:
        for parameter, weight in zip(self._average, self._training_weights or (), strict=False):
            parameter.copy_(weight)
        self._training_weights = None

    def on_exception(self, *_: Any) -> None:
        self.on_validation_end()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        present = [parameter.detach() for parameter in self._average]
        weights = dict(zip(self._average, self._training_weights or present, strict=True))
        checkpoint["state_dict"].update(_named(pl_module, self._average))
        checkpoint[AVERAGE] = {"updates": self.updates, "weights": _named(pl_module, weights)}


def training_weights_first(checkpoint: dict[str, Any]) -> None:
    """Exchange average and training weights of a loaded checkpoint, in place."""
    saved = checkpoint.get(AVERAGE, {})
    if "weights" in saved:
        weights = saved.pop("weights")
        saved["average"] = {name: checkpoint["state_dict"][name] for name in weights}
        checkpoint["state_dict"].update(weights)


def _named(module: nn.Module, values: dict[nn.Parameter, Tensor]) -> dict[str, Tensor]:
    """Return the values by the names in `state_dict`, once for each use of a shared parameter."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {name: values[parameter] for name, parameter in parameters if parameter in values}
