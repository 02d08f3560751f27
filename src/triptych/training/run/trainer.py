"""Run of a training: checks, run folder, callbacks, loggers, and Lightning's Trainer."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.exceptions import SIGTERMException

from triptych.config.schema import to_plain
from triptych.errors import Interrupted
from triptych.files.results import remove_unfinished
from triptych.training.callbacks.checkpointing import KeepCheckpoints
from triptych.training.callbacks.ema import WeightAverage
from triptych.training.callbacks.progress import ShowProgress, clock, say
from triptych.training.callbacks.signals import StopOnSignal
from triptych.training.engine.module import TrainingModule
from triptych.training.finetune.initial import initialize_from, start_from_vectors
from triptych.training.lightning_fixes import (
    AtomicCheckpointIO,
    Patience,
    profiler_of,
    quiet_lightning,
    start_processes,
)
from triptych.training.loading.loader import FixedBatches, ResumableLoader
from triptych.training.loggers.csv import CsvMetrics
from triptych.training.loggers.tensorboard import check_tensorboard, open_tensorboard
from triptych.training.loggers.wandb import open_wandb
from triptych.training.run.checkpoint import code_commit, versions
from triptych.training.run.checks import check_settings
from triptych.training.run.folder import (
    Resume,
    check_run_folder,
    deleted_unless,
    holds_checkpoint,
    is_occupied,
    write_config,
    write_versions,
)
from triptych.training.run.processes import decided_by_rank_0
from triptych.training.run.resume import find_checkpoint
from triptych.training.run.resume import resume as resume_run


def train(
    task: TrainingModule,
    train_loader: ResumableLoader,
    validation_loader: FixedBatches,
    trainer: dict[str, Any],
    resume: Resume = False,
) -> Path:
    """Train the task and return the run's folder.

    trainer: arguments of Lightning's Trainer (max_steps, devices, strategy, ...). resume: continue
    from last.ckpt of the run, or from best.ckpt if that is damaged; "auto": if there is one.

    The folder contains config.yaml, versions.json, metrics.csv, samples/, checkpoints/best.ckpt and
    checkpoints/last.ckpt; fast_dev_run leaves none. Raises UserError before the first step for
    anything refused; Diverged, SaveFailed or Interrupted if the run ends early. The caller seeds
    torch before it builds the model; random numbers of the training depend on run.seed alone.
    """
    quiet_lightning()
    # Objects among the Trainer's arguments, such as callbacks, become text.
    task.metadata["trainer"] = json.loads(json.dumps(trainer, default=str))
    run = task.config.run
    if run.log.tensorboard:
        check_tensorboard()
    arguments = task.trainer_arguments(check_settings(task.config, trainer))
    precision = arguments["precision"]
    folder = Path(run.directory) / run.name
    trial = bool(arguments.get("fast_dev_run"))
    stop = StopOnSignal(task)
    keep = KeepCheckpoints(task, folder / "checkpoints", minutes=run.save_minutes)
    callbacks: list[Callback] = [stop, keep]
    if task.optim.ema_decay:
        callbacks.append(WeightAverage(task.optim.ema_decay))
    if (patience := run.early_stopping_patience) is not None:
        callbacks.append(Patience(f"val/{task.monitor}", mode=task.monitor_mode, patience=patience))
    if arguments.pop("enable_progress_bar", True):
        callbacks.append(ShowProgress(task))
    arguments["profiler"] = profiler_of(arguments.get("profiler"), folder)
    lightning = pl.Trainer(
        **arguments,
        callbacks=callbacks + _listed(trainer.get("callbacks")),
        logger=_listed(trainer.get("logger")),
        plugins=[AtomicCheckpointIO(), *_listed(trainer.get("plugins"))],
        default_root_dir=str(folder),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    start_processes(lightning)
    resumes = decided_by_rank_0(lambda: check_run_folder(folder, resume=resume))
    latest = find_checkpoint(folder) if resumes else None
    first = lightning.is_global_zero
    is_new = first and not is_occupied(folder)
    full = False  # the memory of a GPU; the run starts again with smaller batches

    def folder_is_kept() -> bool:
        began = stop.began and not (trial or full)
        return not is_new or began or holds_checkpoint(folder)

    with stop.installed(), deleted_unless(folder_is_kept, folder):
        step = 0
        facts: dict[str, Any] = {"precision": precision}
        if latest is not None:
            step = resume_run(task, train_loader, *latest, arguments.get("max_epochs"))
        elif run.start.init_from is not None:
            initialize_from(task, run.start.init_from)
        elif run.start.word_vectors is not None:
            frozen = run.start.freeze_word_vectors
            facts["word_vectors"] = start_from_vectors(task, run.start.word_vectors, freeze=frozen)
        train_loader.workers = validation_loader.workers = run.compute.data_workers
        task.samples_folder = folder / "samples" if run.log.samples else None
        # Compiled is the function, not the module: names in checkpoints and validation stay.
        task.compiled_loss = torch.compile(task.training_loss) if run.compute.compile else None
        if first and not trial:
            own = _open_loggers(task, folder, step, facts)
            lightning.loggers = [*own, *lightning.loggers]
        began = time.monotonic()
        try:
            on_gpu = lightning.strategy.root_device.type == "cuda"
            if run.compute.tf32 and on_gpu:
                torch.set_float32_matmul_precision("high")
                precision = f"{precision}, float32 products in TF32"
            _introduce(task, lightning, folder, precision)
            train_loader.pin_memory = validation_loader.pin_memory = on_gpu
            lightning.fit(
                task,
                train_dataloaders=train_loader,
                val_dataloaders=validation_loader,
                ckpt_path=str(latest[0]) if latest is not None else None,
            )
        except torch.OutOfMemoryError:
            full = True
            raise
        except SIGTERMException as error:
            raise Interrupted(
                task.stop_signal or task.agreed_stop or signal.SIGTERM,
                f"ended the run after step {keep.saved_step}; {keep.last} holds it, "
                "--resume goes on from there",
            ) from error
        finally:
            task.compiled_loss = None
            train_loader.close()
            validation_loader.close()
    if trial and is_new:
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
    step: int,
    facts: dict[str, Any],
) -> list[Logger]:
    """Create the run's folder with config.yaml and versions.json; return its loggers.

    facts: what versions.json keeps of this start beside step, seed, versions and size.
    """
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    remove_unfinished(folder / "checkpoints")
    settings = {**to_plain(task.config), "trainer": task.metadata["trainer"]}
    write_config(folder, settings, step)
    start = {"step": step, "seed": task.config.run.seed, **facts}
    identity = write_versions(folder, {**start, "parameters": _size(task)})
    config = {**settings, "versions": versions(), "commit": code_commit()}
    wandb = open_wandb(task.config.run, folder=folder, identity=identity, config=config)
    loggers: list[Logger] = [CsvMetrics(folder / "metrics.csv", keep_until=step)]
    if task.config.run.log.tensorboard:
        loggers.append(open_tensorboard(folder, keep_until=step))
    return loggers if wandb is None else [*loggers, wandb]


def _introduce(task: TrainingModule, trainer: pl.Trainer, folder: Path, precision: str) -> None:
    device = trainer.strategy.root_device
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    processes, batches = trainer.world_size, trainer.accumulate_grad_batches
    many = f"{processes} x " if processes > 1 else ""
    update = (
        f"; an update takes {processes * batches} batches of data.batch_size or data.max_tokens "
        f"({processes} processes x {batches})"
        if processes > 1
        else ""
    )
    trained = sum(weight.numel() for weight in task.parameters() if weight.requires_grad)
    part = f"{trained:,} of " if trained < _size(task) else ""
    say(
        f"Training {part}{_size(task):,} parameters on {many}{kind} in {precision}{update}; "
        f"the run is in {folder}."
    )


def _size(task: TrainingModule) -> int:
    return sum(parameter.numel() for parameter in task.parameters())


def _listed(value: Any) -> list[Any]:
    """Return an argument of the Trainer as a list: empty for None, True and False."""
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
