"""Base class of the domains' LightningModules: optimisation, validation, samples, checkpoints."""

import math
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor, distributed, nn

from triptych.decoding.ranks import sharing
from triptych.errors import Diverged, UserError
from triptych.files.reading import rank_and_world
from triptych.training.callbacks.ema import training_weights_first
from triptych.training.engine.devices import full_precision
from triptych.training.engine.evaluate import MetricSums
from triptych.training.engine.objective import Predictions
from triptych.training.engine.optim import TargetWeights, gradient_norms
from triptych.training.engine.speed import Throughput, peak_flops, training_flops
from triptych.training.finetune.parts import InitialWeights, restrict_training
from triptych.training.finetune.rows import FIXED_ROWS, FixedRows, RowMap, WordRows
from triptych.training.lightning_fixes import log_for_callbacks, unscale_before_clipping
from triptych.training.loading.batches import derive_seed
from triptych.training.loggers import RunLogger
from triptych.training.run.checkpoint import header
from triptych.training.run.settings import RunSettings, run_metadata

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Signals that end a run with a checkpoint."""


ATTENTION = "attention.png"
"""File of `log_samples` with attention weights."""


class TrainingModule(pl.LightningModule, ABC):
    """Model with its loss and metrics; a domain implements the abstract methods.

    model: the core model; its parameters are `model....` in the checkpoint's "state_dict".
    config: all settings of the run; what `run.finetune` leaves out is frozen, and its adapters are
    added to the model. vocabulary: of the data, of JSON types (TypeError otherwise). The
    checkpoint's header has both; `Domain.restore` builds the model from those settings that
    `config.model_settings` returns, and from the vocabulary.
    """

    domain: ClassVar[str]
    """Name of the domain."""
    monitor: str
    """Metric, without "val/", that selects the best checkpoint."""
    monitor_mode: ClassVar[Literal["min", "max"]] = "min"
    sequence_length: int = 0
    """Positions of a sequence, for the operations of attention; 0 for short and unequal ones."""

    def __init__(self, model: nn.Module, config: RunSettings, vocabulary: Any) -> None:
        super().__init__()
        restrict_training(model, config)
        config.optim.objective.check(model, predicts=self.predictions is not None)
        self.model = model
        self.teachers: list[nn.Module] = []
        """Models of `optim.objective.distillation`; in a list nothing trains or saves them."""
        self.config = config
        self.optim = config.optim
        self.settings: Any = config.model_settings()
        # Objects of other types would make the checkpoint unreadable with weights_only.
        self.metadata = run_metadata(self.domain, config, vocabulary)
        # Lightning refuses a rank without validation batches otherwise.
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self.samples_folder: Path | None = None
        """Folder for samples, with a sub-folder per step; None for no samples."""
        self.compiled_loss: Callable[[Any], tuple[Tensor, Tensor | int]] | None = None
        """Compiled `training_loss`, if the run compiles it."""
        self.fixed_rows: FixedRows | None = None
        """Rows of an embedding table that training leaves as they are; None for none."""
        self.throughput = Throughput()
        self.latest: dict[str, float] = {}
        """Metrics of the last validation, without "val/"; {} before the first."""
        self.stop_signal = 0
        """Number of the signal that this process received, 0 for none."""
        self.agreed_stop = 0
        """Number of the signal at which all processes stop, 0 for none."""
        self._target_weights = TargetWeights()
        self._stop_votes = torch.zeros(len(STOP_SIGNALS))
        self._sums = MetricSums()
        self._step_before = -1
        self._gradient_norms: dict[str, Tensor] = {}
        self._before_update: dict[str, tuple[Tensor, Tensor]] = {}

    # Methods that a domain implements or overrides

    def same_vocabulary(self, other: Any) -> bool:
        """Return whether weights of a model with the vocabulary `other` fit this model's data."""
        return bool(other == self.metadata.get("vocabulary"))

    def initial_weights(self, header: dict[str, Any], weights: dict[str, Tensor]) -> InitialWeights:
        """Return what the model takes from a checkpoint; UserError if no part of it fits."""
        return InitialWeights(weights)

    def row_maps(self, other: Any) -> list[RowMap]:
        """Return, by weight, its rows in a model of another vocabulary; UserError for none."""
        raise UserError(
            "run.start.init_vocabulary is data, which models of the domain "
            f"{self.domain} do not support"
        )

    def word_rows(self) -> WordRows:
        """Return the embedding table that word vectors fill, and the words of its rows."""
        raise UserError(
            f"run.start.word_vectors is set, and models of the domain {self.domain} read no words"
        )

    predictions: Callable[[Any, Any], Predictions] | None = None
    """Returns what a pass of a model, this one or a teacher, predicts of a batch; None for a domain
    of another kind of loss, which has a `training_loss` of its own."""

    def training_loss(self, batch: Any) -> tuple[Tensor, Tensor | int]:
        """Return the objective, a mean over the targets without padding, and their number."""
        assert self.predictions is not None
        loss = self.optim.objective.training_loss
        return loss(self.predictions, self.model, batch, self.teachers)

    @abstractmethod
    def score(self, batch: Any) -> dict[str, Tensor]:
        """Return sums over the batch, such as {"nats": ..., "tokens": ...}, as float64 scalars.

        Called in eval mode, without gradients and autocast. Without padding and label smoothing.
        """

    @abstractmethod
    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return ratios from the sums over a whole split; names contain the unit."""

    def generation_metrics(self) -> dict[str, float]:
        """Return metrics of generated output, after each validation; on all ranks, and equal.

        The ranks share what `decoding.ranks` shares out.
        """
        return {}

    def log_samples(self, folder: Path) -> None:
        """Write samples into the folder after a validation; on rank 0 only.

        Loggers show .png, .wav, .mid and .csv (a table with a header), each under its file's name.
        """

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move and convert the teachers with the module, of which they are no part."""
        # `to`, `double` and the rest have this one hook in common, and no public one.
        for teacher in getattr(self, "teachers", ()):
            teacher._apply(fn)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    # Optimisation

    def adapt(self, trainer: pl.Trainer) -> None:
        """Adapt Lightning's Trainer to the module; UserError for a setting that it cannot have."""

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimiser; `on_before_optimizer_step` sets its learning rate."""
        optimizer = self.optim.optimizer.build(self, self.optim.learning_rate)
        unscale_before_clipping(optimizer)
        optimizer.register_step_post_hook(self._restore_fixed_rows)
        return [optimizer]

    def _restore_fixed_rows(self, *_: Any) -> None:
        if self.fixed_rows is not None:
            self.fixed_rows.restore()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Rescale accumulated gradients and set the learning rate of the update."""
        self._target_weights.rescale(self.parameters())
        if self._report_is_due(self.trainer.global_step + 1):
            self._gradient_norms = gradient_norms(self.model)
        every = self.config.run.log.histograms
        if every and self.trainer.is_global_zero and (self.trainer.global_step + 1) % every == 0:
            # Of networks with an optimiser each, one after the other.
            self._before_update |= {
                name: (weight.detach().clone(), weight.grad.clone().cpu())
                for name, weight in self.model.named_parameters()
                if weight.grad is not None
            }
        rate = self.learning_rate(self.trainer.global_step + 1)
        for group in optimizer.param_groups:
            group["lr"] = rate

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of update `step`; the first is 1."""
        return self.optim.schedule.rate(
            self.optim.learning_rate, step, total_steps=self.total_steps(), d_model=self.width()
        )

    def width(self) -> int | None:
        """Return the width of the model, for schedules that depend on it; None if it has none."""
        width: int = self.config.model.transformer.d_model
        return width

    def total_steps(self) -> int | None:
        """Return the number of updates of the whole run; None if only time limits it."""
        estimate = self.trainer.estimated_stepping_batches
        return int(estimate) if math.isfinite(estimate) else None

    def on_train_start(self) -> None:
        """Start the clock, and use the optimiser settings of this start, not the checkpoint's."""
        loader = self.trainer.train_dataloader
        self.throughput = Throughput(lambda: getattr(loader, "seconds_taken", 0.0))
        for loaded, fresh in zip(self.trainer.optimizers, self.configure_optimizers(), strict=True):
            for group, initial in zip(loaded.param_groups, fresh.param_groups, strict=True):
                group.update({**initial, "params": group["params"]})

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed torch from (seed, rank, batches taken), so that a resumed step has equal dropout."""
        self._step_before = self.trainer.global_step
        taken = getattr(self.trainer.train_dataloader, "batches_taken", 0)
        seed = derive_seed(self.config.run.seed, self.trainer.global_rank, taken, 2)
        # torch.manual_seed also seeds devices that are not in use, which takes time.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif self.device.type != "cpu":
            torch.manual_seed(seed)

    @property
    def whole_step(self) -> bool:
        """Whether the last batch completed an update; false between its micro-batches."""
        return self.trainer.global_step != self._step_before

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss, scaled such that every target of an update has the same weight."""
        loss, count = (self.compiled_loss or self.training_loss)(batch)
        dtype = torch.float32 if loss.device.type == "mps" else torch.float64
        targets = torch.as_tensor(count, device=loss.device, dtype=dtype)
        sums = self._sum_over_ranks(torch.stack([targets, loss.detach().to(dtype) * targets]))
        self.throughput.add(targets=sums[0], loss_sum=sums[1])
        if loss.device.type == "cpu":
            self.check_finite()
        # DDP divides gradients by the number of ranks, Lightning the loss by the micro-batches.
        _, world = rank_and_world()
        parts = world * self.trainer.accumulate_grad_batches
        return loss * (self._target_weights.weight(targets, sums[0]) * parts).to(loss.dtype)

    def _sum_over_ranks(self, sums: Tensor) -> Tensor:
        """Return the sums of all ranks, and agree on a stop signal in the same message.

        The agreement of a step is read after the next one, so that no GPU waits for it.
        """
        _, world = rank_and_world()
        if world == 1:
            self.agreed_stop = self.stop_signal
            return sums
        votes = [float(self.stop_signal == number) for number in STOP_SIGNALS]
        message = torch.cat([sums, sums.new_tensor(votes)])
        distributed.all_reduce(message)
        counts = zip(STOP_SIGNALS, self._stop_votes.tolist(), strict=True)
        self.agreed_stop = next((int(number) for number, ranks in counts if ranks), 0)
        self._stop_votes = message[len(sums) :]
        return message[: len(sums)]

    def check_finite(self) -> None:
        """Raise Diverged if a loss since the last report was NaN or infinite."""
        if not self.throughput.is_finite():
            raise Diverged(
                f"the training loss became {self.throughput.loss()} at step "
                f"{self.trainer.global_step + 1}; checkpoints written before stay as they are; "
                "a lower optim.learning_rate, a longer optim.schedule.warmup_steps or "
                "trainer.gradient_clip_val usually helps"
            )

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log the mean loss since the last report, the speed and the learning rate."""
        step = self.trainer.global_step
        if not self.whole_step:
            return
        if self._before_update:
            for logger in self.trainer.loggers:
                if isinstance(logger, RunLogger):
                    logger.log_update(self._before_update, self.model, step)
            self._before_update = {}
        if not self._report_is_due(step):
            return
        self.check_finite()
        values = {
            "train/loss": self.throughput.loss(),
            "train/learning_rate": self.learning_rate(step),
            **{name: float(norm) for name, norm in self._gradient_norms.items()},
            "time/tokens_per_s": self.throughput.tokens_per_second(),
            "time/data_share": self.throughput.data_share(),
            "time/seconds": self.throughput.total_seconds(),
            **self.device_use(),
            **self.further_values(),
        }
        self.throughput.reset()
        self._log(values, step)

    def _report_is_due(self, step: int) -> bool:
        interval: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        return step in (1, self.trainer.max_steps) or step % max(1, interval) == 0

    def further_values(self) -> dict[str, float]:
        """Return values that are logged with the training loss."""
        return {}

    def device_use(self) -> dict[str, float]:
        """Return peak memory in GiB and, if the peak is known, MFU of all GPUs; {} elsewhere."""
        if self.device.type != "cuda":
            return {}
        use = {"time/peak_memory_gib": torch.cuda.max_memory_allocated(self.device) / 2**30}
        peak = peak_flops(torch.cuda.get_device_name(self.device))
        if peak is not None:
            _, world = rank_and_world()
            achieved = self.throughput.tokens_per_second() * self.flops_per_target
            use["time/mfu"] = achieved / (peak * world)
        return use

    @cached_property
    def flops_per_target(self) -> float:
        """Operations of a training step per target, see `training_flops`."""
        return training_flops(self.model, self.sequence_length)

    # Validation

    def on_validation_epoch_start(self) -> None:
        self.throughput.pause()
        self._sums = MetricSums()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Add the batch to the sums; None, on a rank without a batch left, is skipped."""
        if batch is not None:
            with full_precision(self.device):
                self._sums.add(self.score(batch))

    def on_validation_epoch_end(self) -> None:
        with sharing():
            totals = self._sums.read()
        if self.trainer.sanity_checking:
            return
        started = time.monotonic()
        samples: list[Path] = []
        step = self.trainer.global_step
        with full_precision(self.device):
            with sharing():
                metrics = {**self.metrics(totals), **self.generation_metrics()}
            if self.trainer.is_global_zero and self.samples_folder is not None:
                folder = self.samples_folder / f"step-{step:08d}"
                folder.mkdir(parents=True, exist_ok=True)
                self.log_samples(folder)
                samples = sorted(folder.iterdir())
                if not samples:
                    folder.rmdir()
        if not math.isfinite(metrics[self.monitor]):
            raise Diverged(
                f"val/{self.monitor} is {metrics[self.monitor]} at step {step}; checkpoints "
                "written before stay as they are; a lower optim.learning_rate usually helps"
            )
        self.latest = {name: float(value) for name, value in metrics.items()}
        named = {f"val/{name}": value for name, value in self.latest.items()}
        log_for_callbacks(self, named)
        self._log({**named, "time/decoding_seconds": time.monotonic() - started}, step)
        for logger in self.trainer.loggers:
            if samples and isinstance(logger, RunLogger):
                logger.log_files(samples, step)

    def on_validation_end(self) -> None:
        self.throughput.resume()

    # Checkpoints and logs

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["triptych"] = header(
            self.metadata,
            seed=self.config.run.seed,
            step=int(self.trainer.global_step),
            metrics=self.latest,
        )
        if self.fixed_rows is not None:
            checkpoint[FIXED_ROWS] = self.fixed_rows.rows

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the last metrics, and load training weights rather than averaged ones."""
        training_weights_first(checkpoint)
        self.latest = dict(checkpoint["triptych"]["metrics"])
        if (rows := checkpoint.get(FIXED_ROWS)) is not None:
            table = self.word_rows().table
            name = next(name for name, weight in self.named_parameters() if weight is table)
            vectors = checkpoint["state_dict"][name]
            self.fixed_rows = FixedRows(table, rows, vectors[rows.to(vectors.device)].clone())

    def _log(self, values: dict[str, float], step: int) -> None:
        if self.trainer.is_global_zero:
            for logger in self.trainer.loggers:
                logger.log_metrics(values, step)
