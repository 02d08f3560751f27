"""A running mean of the weights: what is validated and kept as the best, while training goes on.

A mean over the last updates scores better than any one of them, since it leaves out the noise that
each step adds (Polyak & Juditsky 1992, Acceleration of stochastic approximation by averaging).
Vaswani et al. 2017, section 6.1, average the last 5 to 20 checkpoints; this is the running form.

In a checkpoint "state_dict" holds one of the two sets of weights and the block "average" the other:

    last.ckpt   state_dict: the training weights   average: {"updates": int, "mean": {...}}
    best.ckpt   state_dict: their mean             average: {"updates": int, "weights": {...}}

So whoever only reads weights takes the mean from best.ckpt without knowing, and a run goes on from
either file bit for bit, see `training_weights_first` (from best.ckpt unless it was written in the
middle of accumulated gradients).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn

BLOCK = "average"
"""Where in a checkpoint the set of weights stands that is not in its "state_dict"."""


def decay_at(decay: float, update: int) -> float:
    """Return how much of the mean update number `update` (the first is 1) keeps.

    min(decay, (1 + n) / (10 + n)): the first updates, far from the end, are soon forgotten.
    """
    return min(decay, (1 + update) / (10 + update))


class WeightAverage(Callback):
    """Keep mean = d x mean + (1 - d) x weights over the updates, d as in `decay_at`.

    decay: above 0 and below 1. The mean is of all trained parameters, in float32 at least; buffers
    and frozen parameters have none and stand in both sets as they are. It starts from the weights
    at the start of the run, or from the checkpoint's mean. One step of it follows each update of
    the optimiser (one that fp16's scaler skips too: the weights are the same then). Nothing is
    exchanged between processes: equal weights give equal means.

    Validations, with decoding and samples, see the mean; after each the training weights are back
    bit for bit, also where it raises. Must stand before whoever writes checkpoints.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._mean: dict[nn.Parameter, Tensor] = {}
        self._aside: list[Tensor] | None = None
        self._loaded: dict[str, Any] = {"updates": 0, "mean": {}}
        self._mean_leads = False
        self._step = 0

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the checkpoint's mean until the parameters are on their device."""
        self._loaded = checkpoint.get(BLOCK, self._loaded)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin with the checkpoint's mean, or with the weights where it has none."""
        self.updates = self._loaded["updates"]
        found = self._loaded["mean"]
        self._mean = {
            parameter: found.get(name, parameter.detach()).to(
                parameter.device, torch.promote_types(parameter.dtype, torch.float32), copy=True
            )
            for name, parameter in pl_module.named_parameters()
            if parameter.requires_grad
        }
        self._loaded = {"updates": 0, "mean": {}}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count updates from here."""
        self._step = trainer.global_step

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Take the new weights into the mean; most batches of accumulated gradients bring none."""
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        self.updates += 1
        new = 1.0 - decay_at(self.decay, self.updates)
        weights = [parameter.detach().to(mean.dtype) for parameter, mean in self._mean.items()]
        torch._foreach_lerp_(list(self._mean.values()), weights, new)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put the mean into the model.

        Values are copied rather than storages exchanged: whoever holds a view of a weight, such as
        a captured CUDA graph, sees it too.
        """
        # Lightning validates in inference mode, whose tensors could not be trained on later.
        with torch.inference_mode(False), torch.no_grad():
            self._aside = [parameter.detach().clone() for parameter in self._mean]
            torch._foreach_copy_(list(self._mean), list(self._mean.values()))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put the training weights back."""
        self._put_back()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Put the training weights back where a validation was cut short."""
        self._put_back()

    def _put_back(self) -> None:
        if self._aside is None:
            return
        with torch.inference_mode(False), torch.no_grad():
            torch._foreach_copy_(list(self._mean), self._aside)
        self._aside = None

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Let checkpoints written inside the block have the mean in "state_dict"."""
        self._mean_leads = True
        try:
            yield
        finally:
            self._mean_leads = False

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write both sets of weights, also where a validation has the mean in the model."""
        present = [parameter.detach() for parameter in self._mean]
        weights = dict(zip(self._mean, self._aside or present, strict=True))
        sets = {"weights": _named(pl_module, weights), "mean": _named(pl_module, self._mean)}
        first, beside = ("mean", "weights") if self._mean_leads else ("weights", "mean")
        checkpoint["state_dict"].update(sets[first])
        checkpoint[BLOCK] = {"updates": self.updates, beside: sets[beside]}


def training_weights_first(checkpoint: dict[str, Any]) -> None:
    """Turn the layout of best.ckpt into that of last.ckpt, in place; other checkpoints stay.

    A resumed run needs it, whether it goes on averaging or not.
    """
    block = checkpoint.get(BLOCK, {})
    if "weights" in block:
        weights = block.pop("weights")
        block["mean"] = {name: checkpoint["state_dict"][name] for name in weights}
        checkpoint["state_dict"].update(weights)


def _named(module: nn.Module, values: dict[nn.Parameter, Tensor]) -> dict[str, Tensor]:
    """Name the values as `state_dict` does, where a shared parameter stands once for each user."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {name: values[parameter] for name, parameter in parameters if parameter in values}
