"""The one base of all three arts' training: loss in, honest metrics out."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, distributed, nn

from triptych.training import metric_sums as sums
from triptych.training.callbacks.ema import training_weights_first
from triptych.training.data import rank_and_world
from triptych.training.exceptions import Diverged
from triptych.training.loggers.media import Media, collect, log_media
from triptych.training.metadata import header, plain
from triptych.training.optim import OptimConfig
from triptych.training.throughput import Meter
from triptych.training.update import Updated

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals that end a run with a checkpoint."""


class TrainingModule(Updated, ABC):
    """What a domain adds to the training: three methods must be written, two more may be.

    model: the core model; its parameters are `task.model...` in the checkpoint's "state_dict".
    optim: optimiser and schedule.
    d_model: width of the model, for the "noam" schedule.
    metadata: {"domain": str, "config": plain dict, "vocabulary": ...}, JSON types only (TypeError
        names anything else); it goes into checkpoint["triptych"], and with it `restore` rebuilds
        the task on a machine without the data.
    """

    domain: ClassVar[str]
    """Name of the folder under domains/."""
    monitor: ClassVar[str]
    """The metric, without "val/", that decides which checkpoint is the best."""
    monitor_mode: ClassVar[Literal["min", "max"]] = "min"

    def __init__(
        self, model: nn.Module, optim: OptimConfig, *, d_model: int, metadata: dict[str, Any]
    ) -> None:
        super().__init__(optim, d_model)
        self.model = model
        self.metadata = plain(metadata, "metadata")
        # Lightning refuses a rank without validation batches unless it is told that we can.
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self.samples_folder: Path | None = None
        """Where `show` writes, one folder per step below it; None: nothing is shown."""
        self.compiled_loss: Callable[[Any], tuple[Tensor, Tensor | int]] | None = None
        """What the training calls in place of `training_loss`, where that was compiled."""
        self.seed = 0
        self.meter = Meter()
        self.latest: dict[str, float] = {}
        """Metrics of the last validation, without "val/"; {} before the first."""
        self.stop_signal = 0
        """Number of the signal that asks this process to stop, 0 for none."""
        self.agreed_stop = 0
        """Number of the signal that all processes agreed to stop for; see `training_step`."""
        self._shares: Tensor | None = None
        self._totals: sums.Totals = {}
        self._logged_step = 0

    # What a domain writes

    def same_vocabulary(self, other: Any) -> bool:
        """Tell whether the weights of a model with this vocabulary mean the same here."""
        return bool(other == self.metadata.get("vocabulary"))

    @abstractmethod
    def training_loss(self, batch: Any) -> tuple[Tensor, Tensor | int]:
        """Return (objective to minimise, its mean over real targets; number of real targets)."""

    @abstractmethod
    def score(self, batch: Any) -> dict[str, Tensor]:
        """Return SUMS over the batch, such as {"nats": ..., "tokens": ...}, as float64 scalars.

        Called in eval mode, without gradients and with autocast off. Padding counts nowhere; label
        smoothing has no place here.
        """

    @abstractmethod
    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Turn the sums over a whole split into ratios named with their unit (nats_per_token)."""

    def generation_metrics(self) -> dict[str, float]:
        """Return metrics that need real decoding, after each validation; on rank 0 only."""
        return {}

    def log_samples(self, folder: Path) -> list[Media]:
        """Write samples into the folder after a validation and list them; on rank 0 only."""
        return []

    # What Lightning calls

    def on_train_start(self) -> None:
        """Start the clock; what was logged before a resume is not logged again."""
        loader = self.trainer.train_dataloader
        self.meter = Meter(lambda: getattr(loader, "seconds_taken", 0.0))
        self._logged_step = self.trainer.global_step
        self.take_given_settings()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss, scaled where needed so that every target weighs the same.

        DDP averages gradients over ranks, which would give a target in a small batch more weight;
        the factor (ranks x own targets / all targets) undoes that. Micro-batches of one update are
        weighed too, see `Accumulation`. The same exchange carries a stop signal, so that all ranks
        stop after the same step.
        """
        loss, count = (self.compiled_loss or self.training_loss)(batch)
        _, world = rank_and_world()
        own = loss.detach()
        kind = torch.float32 if loss.device.type == "mps" else torch.float64
        targets = torch.as_tensor(count, device=loss.device, dtype=kind)
        shares = torch.stack([targets, own.to(kind) * targets])
        if world == 1:
            self.agreed_stop = self.stop_signal
        else:
            asked = [float(self.stop_signal == number) for number in STOP_SIGNALS]
            shares = torch.cat([shares, torch.tensor(asked, device=loss.device, dtype=kind)])
            distributed.all_reduce(shares)
            loss = loss * (world * targets / shares[0].clamp(min=1)).to(loss.dtype)
            # Reading the sum of this very step would make a GPU wait; the one before is there.
            before = self._shares.tolist()[2:] if self._shares is not None else []
            self._shares = shares
            for number, ranks in zip(STOP_SIGNALS, before, strict=False):
                if ranks and not self.agreed_stop:
                    self.agreed_stop = int(number)
        if self.trainer.accumulate_grad_batches > 1:
            # Lightning divides by the number of micro-batches, which is undone here.
            weight = self.accumulation.weight(shares[0]) * self.trainer.accumulate_grad_batches
            loss = loss * weight.to(loss.dtype)
        self.meter.add(targets=shares[0], loss_sum=shares[1])
        if loss.device.type == "cpu":
            self.check_finite()
        return loss

    def check_finite(self) -> None:
        """Raise Diverged where a loss since the last report was NaN or infinite."""
        if not self.meter.is_finite():
            raise Diverged(
                f"The training loss became {self.meter.loss()} at step "
                f"{self.trainer.global_step + 1}; checkpoints written before stay as they are. "
                "A lower optim.learning_rate, a longer optim.warmup_steps or "
                "trainer.gradient_clip_val usually helps."
            )

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log the mean loss since the last report, the speed and the learning rate."""
        step = self.trainer.global_step
        due = step == 1 or step % max(1, self.trainer.log_every_n_steps) == 0
        if step == self._logged_step or step == 0 or not due:
            return
        self._logged_step = step
        self.check_finite()
        figures = {
            "train/loss": self.meter.loss(),
            "train/learning_rate": self.learning_rate(step),
            "time/tokens_per_s": self.meter.tokens_per_second(),
            "time/data_share": self.meter.data_share(),
            "time/seconds": self.meter.seconds_in_all(),
        }
        self.meter.reset()
        self._log(figures, step)

    def on_validation_epoch_start(self) -> None:
        """Begin the sums anew."""
        self.meter.pause()
        self._totals = {}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Add the batch to the sums."""
        if batch is not None:
            with sums.full_precision(self.device):
                sums.add_sums(self._totals, self.score(batch), self.device)

    def on_validation_epoch_end(self) -> None:
        """Divide the sums of all ranks, decode, show samples and log."""
        totals = sums.of_all_ranks(sums.read_totals(self._totals))
        self._totals = {}
        if self.trainer.sanity_checking:
            return
        started = time.monotonic()
        metrics = self.metrics(totals)
        decoded: dict[str, float] = {}
        media: list[Media] = []
        step = self.trainer.global_step
        if self.trainer.is_global_zero:
            with sums.full_precision(self.device):
                decoded = self.generation_metrics()
                if self.samples_folder is not None:
                    media = collect(self.log_samples, self.samples_folder / f"step-{step:08d}")
        metrics = {**metrics, **self.trainer.strategy.broadcast(decoded)}
        if not sums.is_finite(metrics[self.monitor]):
            raise Diverged(
                f"val/{self.monitor} is {metrics[self.monitor]} at step {step}; checkpoints "
                "written before stay as they are. A lower optim.learning_rate usually helps."
            )
        self.latest = {name: float(value) for name, value in metrics.items()}
        named = {f"val/{name}": value for name, value in self.latest.items()}
        # For Lightning's own callbacks (early stopping); what is written goes through _log.
        self.log_dict(
            {name: torch.tensor(value, dtype=torch.float64) for name, value in named.items()}
            if self.device.type != "mps"
            else named,
            logger=False,
            sync_dist=True,  # equal on all ranks already; Lightning warns where it is not set
        )
        self._log({**named, "time/decoding_seconds": time.monotonic() - started}, step)
        if self.trainer.is_global_zero:
            log_media(self.trainer.loggers, media, step)

    def on_validation_end(self) -> None:
        """Let the clock of training run again."""
        self.meter.go_on()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put the block that makes the checkpoint self-contained into it."""
        checkpoint["triptych"] = header(
            self.metadata, seed=self.seed, step=int(self.trainer.global_step), metrics=self.latest
        )

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the last validation's metrics over, and the weights that the training stood at."""
        training_weights_first(checkpoint)
        self.latest = dict(checkpoint["triptych"]["metrics"])

    def _log(self, figures: dict[str, float], step: int) -> None:
        if self.trainer.is_global_zero:
            for logger in self.trainer.loggers:
                logger.log_metrics(figures, step)
