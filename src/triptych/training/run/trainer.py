"""Run of a training: checks, run folder, callbacks, loggers, and Lightning's Trainer."""

import json
import shutil
import signal
import time
from contextlib import ExitStack
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
from triptych.training.callbacks.checkpointing import KeepCheckpoints, StopOnSignal
from triptych.training.callbacks.ema import WeightAverage
from triptych.training.callbacks.progress import ShowProgress, clock, say
from triptych.training.engine.devices import without_cudnn_attention
from triptych.training.engine.module import TrainingModule
from triptych.training.finetune.initial import find_start, initialize_from, start_from_vectors
from triptych.training.lightning_fixes import Patience, quiet_lightning, start_processes
from triptych.training.loggers import CsvMetrics
from triptych.training.run.checkpoint import code_commit, versions
from triptych.training.run.checks import SHARDED, build_trainer, check_batches
from triptych.training.run.processes import (
    Prepare,
    decided_by_rank_0,
    disconnected_by_refusal,
    prepare_in_turn,
)
from triptych.training.run.resume import (
    Resume,
    check_run_folder,
    holds_checkpoint,
    is_occupied,
    resume_run,
    write_config,
    write_versions,
)
from triptych.training.run.settings import RunSettings
from triptych.training.wandb_logger import open_wandb


@disconnected_by_refusal()
def train(
    domain: str,
    config: RunSettings,
    prepare: Prepare,
    trainer: dict[str, Any],
    resume: Resume = False,
) -> Path:
    """Train a model and return the run's folder.

    prepare: `Domain.prepare`, which reads the data and seeds torch before it builds the model.
    trainer: arguments of Lightning's Trainer. resume: continue from last.ckpt of the run, or from
    best.ckpt if that is damaged; "auto": if there is one.

    The folder contains config.yaml, versions.json, metrics.csv, samples/ and checkpoints/;
    fast_dev_run leaves none. Raises UserError before the first step for anything refused, for most
    settings before the data are read; Diverged, SaveFailed or Interrupted if the run ends early.
    """
    quiet_lightning()
    folder = config.run.folder
    keep = KeepCheckpoints(
        folder / "checkpoints", minutes=config.run.save_minutes, late=config.run.keep_late
    )
    lightning = build_trainer(config, trainer, keep)
    start_processes(lightning)
    resumes = decided_by_rank_0(lambda: check_run_folder(folder, resume=resume))
    max_epochs = trainer.get("max_epochs")
    start = find_start(domain, config, folder if resumes else None, max_epochs=max_epochs)
    config, run = start.config, start.config.run
    task, train_loader, validation_loader = prepare_in_turn(prepare, config, start.vocabulary)
    check_batches(lightning, len(train_loader), len(validation_loader))
    task.adapt(lightning)
    # Objects among the Trainer's arguments, such as callbacks, become text.
    task.metadata["trainer"] = json.loads(json.dumps(trainer, default=str))
    stop = StopOnSignal(task)
    callbacks: list[Callback] = [stop]
    if trainer.get("strategy") == SHARDED:
        from triptych.training.run.sharding import WholeForValidation

        callbacks.insert(0, WholeForValidation())
    if task.optim.ema_decay:
        callbacks.append(WeightAverage(task.optim.ema_decay))
    if (patience := run.early_stopping_patience) is not None:
        callbacks.append(Patience(f"val/{task.monitor}", mode=task.monitor_mode, patience=patience))
    if trainer.get("enable_progress_bar", True):
        callbacks.append(ShowProgress(task))
    lightning.callbacks[:0] = callbacks  # type: ignore[attr-defined]
    first = lightning.is_global_zero
    trial = bool(lightning.fast_dev_run)  # type: ignore[attr-defined]
    is_new = first and not is_occupied(folder)
    full = False  # the memory of a GPU; the run starts again with smaller batches

    def clear() -> None:
        """Delete a folder without a checkpoint, which would be in the way of the same command."""
        began = stop.began and not (trial or full)
        if is_new and not began and not holds_checkpoint(folder):
            shutil.rmtree(folder, ignore_errors=True)

    with stop.installed(), ExitStack() as at_end:
        at_end.callback(clear)
        step = 0
        precision = str(lightning.precision)
        facts: dict[str, Any] = {"precision": precision}
        if start.resumed is not None:
            step = resume_run(task, train_loader, *start.resumed)
        elif start.initial is not None:
            initialize_from(task, start.initial)
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
            without_cudnn_attention()
            if torch.are_deterministic_algorithms_enabled():  # this one has no such way
                torch.backends.cuda.enable_mem_efficient_sdp(False)
            _introduce(task, lightning, folder, precision)
            train_loader.pin_memory = validation_loader.pin_memory = on_gpu
            last = str(start.resumed[0]) if start.resumed else None
            lightning.fit(task, train_loader, validation_loader, ckpt_path=last)
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
    task: TrainingModule, folder: Path, step: int, facts: dict[str, Any]
) -> list[Logger]:
    """Create the run's folder with config.yaml and versions.json; return its loggers."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    remove_unfinished(folder / "checkpoints")
    settings = {**to_plain(task.config), "trainer": task.metadata["trainer"]}
    write_config(folder, settings, step)
    best = f"val/{task.monitor}", task.monitor_mode
    start = {"step": step, "seed": task.config.run.seed, "monitor": best, **facts}
    identity = write_versions(folder, {**start, "parameters": _size(task)})
    config = {**settings, "versions": versions(), "commit": code_commit()}
    wandb = open_wandb(
        task.config.run, folder=folder, identity=identity, config=config, best=best, console=True
    )
    loggers: list[Logger] = [CsvMetrics(folder / "metrics.csv", keep_until=step)]
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
