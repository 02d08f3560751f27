"""Work-arounds of faults and surprises of Lightning 2.6, each with its reason.

Every one has a test in tests/training/test_lightning_fixes.py that fails where Lightning does not
need it any more, and one that fails where it is not applied. pyproject.toml admits no later minor
version. What replaces a whole component of Lightning says so itself: `KeepCheckpoints`,
`WeightAverage`, `StopOnSignal`, `ShowProgress`, `CsvMetrics` and `ResumableLoader`.
"""

import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher
from torch import distributed

from triptych.errors import SaveFailed
from triptych.files.results import atomic_file
from triptych.training.run.checkpoint import read_checkpoint

QUIET = (
    # The run has its own folder layout and log interval.
    r".*smaller than the logging interval.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    # Notices between libraries.
    r".*isinstance\(treespec, LeafSpec\).*",
    r".*`lr_scheduler\.step\(\)` before.*",
    # Its successor is not in the oldest torch that we support.
    r".*`broadcast_buffers` is deprecated.*",
    # The loaders start workers themselves, see run.compute.data_workers.
    r".*does not have many workers.*",
)
"""Warnings of Lightning that no user can act on."""

DDP_DEFAULTS = {"broadcast_buffers": False, "gradient_as_bucket_view": True}
"""Arguments of DistributedDataParallel: buffers are constants here, and gradients need no copy."""


def quiet_lightning() -> None:
    """Silence Lightning's greetings and the warnings in `QUIET`."""
    for name in ("pytorch_lightning", "lightning_fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in QUIET:
        warnings.filterwarnings("ignore", message=message)


def unscale_before_clipping(optimizer: torch.optim.Optimizer) -> None:
    """Let the gradient scaler unscale fp16 gradients before they are clipped.

    Lightning refuses to clip those of a fused optimiser, which unscales them in its step.
    """
    optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]


def log_for_callbacks(module: pl.LightningModule, values: dict[str, float]) -> None:
    """Give callbacks such as EarlyStopping the metrics of a validation, equal on all ranks.

    Lightning keeps them in float32 if they are no tensors, and warns without `sync_dist`, which
    sends them as they are: NCCL sends tensors of its GPU alone. MPS has no float64. The loggers get
    the values elsewhere.
    """
    device = module.device
    dtype = torch.float32 if device.type == "mps" else torch.float64
    tensors = {name: torch.tensor(v, dtype=dtype, device=device) for name, v in values.items()}
    module.log_dict(tensors, logger=False, sync_dist=True)


def end_after_batch(trainer: pl.Trainer, wanted: bool) -> None:
    """Make Lightning raise SIGTERMException after the current batch, or not.

    Its flag `should_stop` adds a validation, and an exception comes before the last step is logged.
    """
    trainer._signal_connector.received_sigterm = wanted


def take_signals_back(numbers: Iterable[int], handler: Callable[..., None]) -> None:
    """Make a function the only handler of signals, which Lightning has wrapped with its own.

    Lightning's ends the run after the current batch, also within an update, and kills the ranks.
    """
    for number in numbers:
        signal.signal(number, handler)


def settle_epoch(loops: dict[str, Any]) -> None:
    """Set the batch count of a completed epoch to 0 in the state of Lightning's loops, in place.

    Resumed there, Lightning goes on with the old count, which shifts accumulation and validation.
    """
    epoch, batch = loops["epoch_progress"]["current"], loops["epoch_loop.batch_progress"]
    if epoch["completed"] == epoch["ready"] > 0 and batch["is_last_batch"]:
        batch["current"] = dict.fromkeys(batch["current"], 0)
        batch["is_last_batch"] = False


def validation_may_follow(trainer: pl.Trainer) -> bool:
    """Return whether Lightning may validate after the batch that has just ended.

    It calls `on_train_batch_end` before the validation, and a run that is resumed from a checkpoint
    of that moment skips the validation.
    """
    every_epochs = trainer.check_val_every_n_epoch or 1
    if not trainer.enable_validation or (trainer.current_epoch + 1) % every_epochs:
        return False
    if trainer.is_last_batch:
        return True
    every = trainer.val_check_batch
    if every is None or every == float("inf"):
        return False
    fit = trainer.fit_loop
    in_all = trainer.check_val_every_n_epoch is None
    done = (fit.total_batch_idx if in_all else fit.batch_idx) + 1
    return done % int(every) == 0


class AtomicCheckpointIO(TorchCheckpointIO):
    """Atomic writing of checkpoints: a killed process leaves the former file or the new one.

    Lightning's goes through a temporary folder, and loses a checkpoint silently if that is full.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        try:
            with atomic_file(Path(path)) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or error
            raise SaveFailed(
                f"the checkpoint {path} could not be written: {why}; an earlier file of that name "
                "is untouched"
            ) from error

    def load_checkpoint(self, path: str | os.PathLike[str], *_: Any, **__: Any) -> dict[str, Any]:
        return read_checkpoint(path)


class Patience(EarlyStopping):
    """Lightning's EarlyStopping after each validation, with the patience of this start.

    By default EarlyStopping checks at the end of an epoch, after last.ckpt is written, and restores
    the patience of the checkpoint.
    """

    def __init__(self, monitor: str, *, mode: str, patience: int) -> None:
        super().__init__(monitor, patience=patience, mode=mode, check_on_train_epoch_end=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})


def profiler_of(wanted: Profiler | str | None, folder: Path) -> Profiler | str | None:
    """Return a profiler by its name; it writes fit-profile.txt into the run's folder.

    Lightning's own choice by name prints the report as a message of its logger, which is silent.
    """
    kinds: dict[Any, type[Profiler]] = {
        "simple": SimpleProfiler,
        "advanced": AdvancedProfiler,
        "pytorch": PyTorchProfiler,
    }
    return kinds[wanted](folder, "profile") if wanted in kinds else wanted


def start_processes(trainer: pl.Trainer) -> None:
    """Start the processes that Lightning has to start, once, and connect all ranks.

    Lightning does so in `fit`; here it is before the data are read, so that rank 0 can decide.
    """
    strategy = trainer.strategy
    if isinstance(strategy, DDPStrategy):
        # A public way, a DDPStrategy with arguments, needs to know before the Trainer is built that
        # Lightning will choose DDP.
        strategy._ddp_kwargs = {**DDP_DEFAULTS, **strategy._ddp_kwargs}
    if trainer.world_size > 1 and not distributed.is_initialized():
        assert strategy.launcher is not None
        strategy.launcher.launch(lambda: None)
        strategy.setup_environment()  # connects


def copies_this_process(trainer: pl.Trainer) -> bool:
    """Return whether the training would run in copies of this process (fork or spawn).

    Their state is lost to the process that started the run; nothing public says how they start.
    """
    return isinstance(trainer.strategy.launcher, _MultiProcessingLauncher)
