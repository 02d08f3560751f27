"""One run from the first check to its end: what Lightning's Trainer needs is put together here."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.exceptions import SIGTERMException

from triptych.training.arguments import (
    check_arguments,
    check_patience,
    choose_precision,
    listed,
    on_cuda,
    user_loggers,
    writable,
)
from triptych.training.callbacks.checkpointing import KeepCheckpoints
from triptych.training.callbacks.ema import WeightAverage
from triptych.training.callbacks.progress import ShowProgress, clock, quiet_lightning, say
from triptych.training.callbacks.run_control import Patience, StepSeed, StopOnSignal
from triptych.training.checkpoint import AtomicCheckpointIO, check_writable, remove_unfinished
from triptych.training.compiled import CompileLoss, check_compiler
from triptych.training.data import FixedBatches, ResumableLoader
from triptych.training.exceptions import Interrupted
from triptych.training.init_from import start_with
from triptych.training.loggers.csv import CsvMetrics
from triptych.training.loggers.wandb import WandbMetrics, open_wandb
from triptych.training.loggers.wandb_mode import decide_wandb
from triptych.training.metadata import code_commit, plain, versions
from triptych.training.module import TrainingModule
from triptych.training.run_folder import (
    check_epochs,
    find_checkpoint,
    holds_checkpoint,
    is_first_process,
    refuse_overwriting,
    removed_unless,
    take_up,
    write_config,
    write_versions,
)
from triptych.training.run_settings import RunConfig


def train(
    task: TrainingModule,
    train_loader: ResumableLoader,
    validation_loader: FixedBatches,
    run: RunConfig,
    trainer: dict[str, Any],
    resume: bool = False,
) -> Path:
    """Train the task and return the run's folder.

    trainer: arguments of Lightning's Trainer (max_steps, devices, strategy, ...), passed on as they
    are. resume: go on from last.ckpt of that run, or from best.ckpt where the last is damaged.

    The folder holds config.yaml (all settings as given), versions.json, metrics.csv, samples/ and
    checkpoints/best.ckpt and last.ckpt; fast_dev_run leaves none. Everything that can be refused is
    refused before the first step, as UserError. Raises Diverged, SaveFailed or Interrupted (see
    `stopped`) where the run ends before its time. The caller seeds torch before it builds the
    model; what is drawn from the first step on depends on run.seed alone.
    """
    quiet_lightning()
    arguments = check_arguments(trainer)
    if run.compile:
        check_compiler("cuda" if on_cuda(arguments) else "cpu")
    check_patience(run.early_stopping_patience, arguments)
    folder = Path(run.directory) / run.name
    first = is_first_process()
    found = find_checkpoint(folder) if resume else None
    if found is None and first:
        refuse_overwriting(folder, resume=resume)
    stop = StopOnSignal()
    own = found is None and first  # the folder was empty or not there
    trial = bool(arguments.get("fast_dev_run"))

    def to_keep() -> bool:
        return not own or (stop.began and not trial) or holds_checkpoint(folder)

    with stop.installed(), removed_unless(to_keep, folder):
        step = 0
        if found is not None:
            step = take_up(task, train_loader, run, *found)
            check_epochs(*found, arguments.get("max_epochs"))
        elif run.init_from is not None:
            start_with(task, run.init_from)
        if first:
            check_writable(folder / "checkpoints")
            remove_unfinished(folder / "checkpoints")
        decay = task.optim.ema_decay
        average = WeightAverage(decay) if decay else None
        keep = KeepCheckpoints(folder / "checkpoints", minutes=run.save_minutes, average=average)
        task.seed = run.seed
        task.samples_folder = folder / "samples" if run.samples else None
        settings = plain({**task.metadata["config"], "trainer": writable(trainer)}, "config")
        precision = arguments.pop("precision", None) or choose_precision(
            run.precision, arguments, task.d_model
        )
        identity = write_versions(folder, run, precision, task, step) if first else ""
        loggers: list[Logger] = []
        if first:
            write_config(folder, settings, step)
            resumed_from = step if found is not None else None
            loggers.append(CsvMetrics(folder / "metrics.csv", keep_until=resumed_from))
            opened = open_wandb(
                decide_wandb(run.wandb),
                say,
                folder=folder,
                project=run.wandb_project,
                name=run.name,
                identity=identity,
                config={**settings, "versions": versions(), "commit": code_commit()},
            )
            loggers += [opened] if opened is not None else []
        callbacks: list[Callback] = [StepSeed(run.seed, train_loader), stop, keep]
        if average is not None:
            callbacks.insert(0, average)
        if run.compile:
            callbacks.insert(0, CompileLoss())
        if run.early_stopping_patience is not None:
            callbacks.append(
                Patience(task.monitor, run.early_stopping_patience, mode=task.monitor_mode)
            )
        if arguments.pop("enable_progress_bar", True):
            callbacks.append(ShowProgress())
        status = "failed"
        began = time.monotonic()
        try:
            lightning = pl.Trainer(
                **arguments,
                precision=precision,
                callbacks=callbacks + listed(trainer.get("callbacks")),
                logger=loggers + user_loggers(trainer.get("logger")),
                plugins=[AtomicCheckpointIO(), *listed(trainer.get("plugins"))],
                default_root_dir=str(folder),
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            _introduce(task, lightning, folder, precision)
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
                "--resume goes on from there.",
                number,
            ) from error
        finally:
            for logger in loggers:
                if isinstance(logger, WandbMetrics):
                    logger.finalize(status)
    if trial and own:
        # Else the run that was tried would be refused because of it.
        shutil.rmtree(folder, ignore_errors=True)
        say("The trial went through; nothing is kept of it.")
        return folder
    best = (
        f"; best val/{task.monitor} {keep.best_value:.4f} at step {keep.best_step}: {keep.best}"
        if keep.best_value is not None and keep.best.exists()
        else ""
    )
    say(f"Finished at step {lightning.global_step} in {clock(time.monotonic() - began)}{best}")
    return folder


def _introduce(task: TrainingModule, trainer: pl.Trainer, folder: Path, precision: str) -> None:
    parameters = sum(parameter.numel() for parameter in task.parameters())
    device = trainer.strategy.root_device
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    many = f"{trainer.world_size} x " if trainer.world_size > 1 else ""
    where = f"{many}{kind} in {precision}"
    say(f"Training {parameters:,} parameters on {where}; the run is in {folder}.")
