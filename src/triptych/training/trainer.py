"""Run of a training: checks, run folder, callbacks, loggers, and Lightning's Trainer."""

from __future__ import annotations

import difflib
import functools
import inspect
import shutil
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.exceptions import SIGTERMException

from triptych.errors import UserError
from triptych.training.callbacks.checkpointing import AtomicCheckpointIO, KeepCheckpoints
from triptych.training.callbacks.ema import WeightAverage
from triptych.training.callbacks.progress import ShowProgress, clock, quiet_lightning, say
from triptych.training.callbacks.run_control import Patience, StopOnSignal
from triptych.training.data import FixedBatches, ResumableLoader
from triptych.training.devices import choose_precision, uses_cuda
from triptych.training.exceptions import Interrupted
from triptych.training.files import create_run_folder, remove_unfinished
from triptych.training.loggers.csv import CsvMetrics
from triptych.training.loggers.wandb import WandbMetrics, open_wandb
from triptych.training.metadata import code_commit, plain, versions
from triptych.training.module import TrainingModule
from triptych.training.resume import check_epochs, find_checkpoint, initialize_from
from triptych.training.resume import resume as resume_run
from triptych.training.run_config import RunConfig
from triptych.training.run_folder import (
    holds_checkpoint,
    is_first_process,
    refuse_overwriting,
    removed_unless,
    write_config,
    write_versions,
)

NOT_ALLOWED = {
    "default_root_dir": "use --run.directory and --run.name",
    "enable_checkpointing": "best.ckpt and last.ckpt are always kept",
    "enable_model_summary": "the number of parameters is always printed",
    "barebones": "leave it out",
    "overfit_batches": "no batch comes twice here; use a small data set to overfit",
}
"""Trainer arguments that the run sets itself, and the alternative."""

OBJECTS = ("callbacks", "logger", "plugins")
"""Trainer arguments that are objects; `train` adds them to its own."""


def check_arguments(trainer: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's arguments with a chosen precision; UserError for unknown ones."""
    parameters = inspect.signature(pl.Trainer.__init__).parameters
    for name, value in trainer.items():
        if name not in parameters or name == "self":
            near = difflib.get_close_matches(name, list(parameters), n=1)
            hint = f"; did you mean trainer.{near[0]}?" if near else ""
            raise UserError(f"trainer.{name} is no argument of Lightning's Trainer{hint}")
        if name in NOT_ALLOWED and value is not None and value != parameters[name].default:
            raise UserError(f"trainer.{name} is set by the run: {NOT_ALLOWED[name]}")
    limits = ("max_steps", "max_epochs", "max_time")
    if all(trainer.get(name) in (None, -1) for name in limits) and not trainer.get("fast_dev_run"):
        raise UserError(
            "nothing says when to stop: set --trainer.max_steps (or trainer.max_epochs or "
            "trainer.max_time)"
        )
    handled = {*NOT_ALLOWED, *OBJECTS}
    kept = {name: value for name, value in trainer.items() if name not in handled}
    # One validation batch before the first step shows errors in validation early.
    if kept.get("num_sanity_val_steps") is None:
        kept["num_sanity_val_steps"] = 1
    return {**kept, "precision": choose_precision(trainer)}


def check_run(run: RunConfig, trainer: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's arguments as `check_arguments` does, before any data are read.

    Raises UserError for unknown arguments, early stopping without validations, and run.compile
    without a compiler.
    """
    arguments = check_arguments(trainer)
    patience = run.early_stopping_patience
    if patience is not None and arguments.get("limit_val_batches") == 0:
        raise UserError(
            f"run.early_stopping_patience is {patience} validations, but "
            "trainer.limit_val_batches is 0; set one of them to null"
        )
    if run.compile:
        check_compiler("cuda" if uses_cuda(arguments) else "cpu")
    return arguments


@functools.cache
def check_compiler(device: str = "cpu") -> None:
    """Compile a small function forward and backward; UserError with the reason on failure."""
    x = torch.ones(64, device=device, requires_grad=True)
    try:
        torch.compile(lambda x: (x.sin() * 2).sum())(x).backward()
    except Exception as error:  # torch wraps the compiler's failure in its own types
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        needs = "a working C++ compiler (g++)" if device == "cpu" else "Triton and a C compiler"
        raise UserError(
            f"run.compile needs {needs} on this machine, and compiling a small function failed: "
            f"{reason[:200].rstrip('. :')}; install it, or leave run.compile off"
        ) from error


def train(
    task: TrainingModule,
    train_loader: ResumableLoader,
    validation_loader: FixedBatches,
    run: RunConfig,
    trainer: dict[str, Any],
    resume: bool = False,
) -> Path:
    """Train the task and return the run's folder.

    trainer: arguments of Lightning's Trainer (max_steps, devices, strategy, ...). resume: continue
    from last.ckpt of the run, or from best.ckpt if that is damaged.

    The folder contains config.yaml, versions.json, metrics.csv, samples/, checkpoints/best.ckpt and
    checkpoints/last.ckpt; fast_dev_run leaves none. Raises UserError before the first step for
    anything refused; Diverged, SaveFailed or Interrupted if the run ends early. The caller seeds
    torch before it builds the model; random numbers of the training depend on run.seed alone.
    """
    quiet_lightning()
    arguments = check_run(run, trainer)
    folder = Path(run.directory) / run.name
    first = is_first_process()
    found = find_checkpoint(folder) if resume else None
    if found is None and first:
        refuse_overwriting(folder, resume=resume)
    stop = StopOnSignal()
    new = found is None and first
    trial = bool(arguments.get("fast_dev_run"))

    def to_keep() -> bool:
        return not new or (stop.began and not trial) or holds_checkpoint(folder)

    with stop.installed(), removed_unless(to_keep, folder):
        step = 0
        if found is not None:
            path, content = found
            step = resume_run(task, train_loader, seed=run.seed, path=path, content=content)
            check_epochs(path, content, arguments.get("max_epochs"))
        elif run.init_from is not None:
            initialize_from(task, run.init_from)
        if first:
            create_run_folder(folder / "checkpoints")
            remove_unfinished(folder / "checkpoints")
        task.seed = run.seed
        train_loader.workers = validation_loader.workers = run.data_workers
        task.samples_folder = folder / "samples" if run.samples else None
        # Compiled is the function, not the module: names in checkpoints and validation stay.
        task.compiled_loss = torch.compile(task.training_loss) if run.compile else None
        loggers: list[Logger] = []
        if first:
            loggers = _open_loggers(task, folder, run, trainer, arguments, step, found is not None)
        average = WeightAverage(task.optim.ema_decay) if task.optim.ema_decay else None
        keep = KeepCheckpoints(folder / "checkpoints", minutes=run.save_minutes)
        callbacks: list[Callback] = [stop, keep]
        if average is not None:
            callbacks.insert(0, average)  # before the callback that writes checkpoints
        if (patience := run.early_stopping_patience) is not None:
            callbacks.append(Patience(task.monitor, patience, mode=task.monitor_mode))
        if arguments.pop("enable_progress_bar", True):
            callbacks.append(ShowProgress())
        status = "failed"
        began = time.monotonic()
        try:
            lightning = pl.Trainer(
                **arguments,
                callbacks=callbacks + _listed(trainer.get("callbacks")),
                logger=loggers + _user_loggers(trainer.get("logger")),
                plugins=[AtomicCheckpointIO(), *_listed(trainer.get("plugins"))],
                default_root_dir=str(folder),
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            _introduce(task, lightning, folder, arguments["precision"])
            lightning.fit(
                task,
                train_dataloaders=train_loader,
                val_dataloaders=validation_loader,
                ckpt_path=str(found[0]) if found is not None else None,
            )
            status = "success"
        except SIGTERMException as error:
            number = stop.received or 15
            name = Interrupted("", number).signal_name
            raise Interrupted(
                f"{name} ended the run after step {keep.saved_step}; {keep.last} holds it, "
                "--resume goes on from there",
                number,
            ) from error
        finally:
            task.compiled_loss = None
            for logger in loggers:
                if isinstance(logger, WandbMetrics):
                    logger.finalize(status)
    if trial and new:
        # The folder would make the same run be refused.
        shutil.rmtree(folder, ignore_errors=True)
        say("The trial run passed; its files are deleted.")
        return folder
    best = (
        f"; best val/{task.monitor} {keep.best_value:.4f} at step {keep.best_step}: {keep.best}"
        if keep.best_value is not None and keep.best.exists()
        else ""
    )
    say(f"Finished at step {lightning.global_step} in {clock(time.monotonic() - began)}{best}")
    return folder


def _open_loggers(
    task: TrainingModule,
    folder: Path,
    run: RunConfig,
    trainer: dict[str, Any],
    arguments: dict[str, Any],
    step: int,
    resumed: bool,
) -> list[Logger]:
    """Write config.yaml and versions.json, and open metrics.csv and Weights & Biases."""
    settings = plain({**task.metadata["config"], "trainer": writable(trainer)}, "config")
    start = {
        "step": step,
        "seed": run.seed,
        "precision": arguments["precision"],
        "parameters": sum(parameter.numel() for parameter in task.parameters()),
    }
    wandb_id = write_versions(folder, start)
    write_config(folder, settings, step)
    loggers: list[Logger] = [
        CsvMetrics(folder / "metrics.csv", keep_until=step if resumed else None)
    ]
    opened = open_wandb(
        run,
        folder=folder,
        identity=wandb_id,
        config={**settings, "versions": versions(), "commit": code_commit()},
    )
    return loggers + ([opened] if opened is not None else [])


def _introduce(task: TrainingModule, trainer: pl.Trainer, folder: Path, precision: str) -> None:
    parameters = sum(parameter.numel() for parameter in task.parameters())
    device = trainer.strategy.root_device
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    many = f"{trainer.world_size} x " if trainer.world_size > 1 else ""
    where = f"{many}{kind} in {precision}"
    say(f"Training {parameters:,} parameters on {where}; the run is in {folder}.")


def _listed(value: Any) -> list[Any]:
    """Return a list: empty for None, of one entry for a single object."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _user_loggers(value: Any) -> list[Logger]:
    """Return the user's additional loggers; True, False and None add none."""
    return [item for item in _listed(value) if isinstance(item, Logger)]


def writable(trainer: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's arguments as values for YAML; objects become their text."""

    def text(value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, (list, tuple)):
            return [text(item) for item in value]
        if isinstance(value, dict):
            return {str(key): text(item) for key, item in value.items()}
        return str(value)

    return {name: text(value) for name, value in trainer.items()}
