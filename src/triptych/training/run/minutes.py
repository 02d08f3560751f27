"""The length of a run from a time: some updates and a validation of it are timed first."""

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from triptych.errors import UserError
from triptych.training.callbacks.progress import say
from triptych.training.run.processes import Prepare, Prepared, decided_by_rank_0
from triptych.training.run.resume import Resume, find_checkpoint, holds_checkpoint
from triptych.training.run.settings import RunSettings, run_metadata
from triptych.training.run.trainer import train

TIMED_SHARE, MOST_TIMED = 0.04, 60.0
"""Share of the time in which updates are timed, and at most so many seconds."""
LEAST_TIMED = 8
"""Fewest batches that are timed; a quarter of all is not counted, as the first ones are slow."""
MARGIN = 0.95
"""Share of the time that is planned; the rest is for checkpoints and slower updates."""
VALIDATIONS, VALIDATION_SHARE = 4, 0.3
"""Validations of a run whose settings count none in updates; share of the time for all of them."""
WARMUP_SHARE = 0.1
"""Largest share of the updates that is the warm-up."""
LENGTH = ("max_steps", "max_epochs", "val_check_interval", "check_val_every_n_epoch")
"""Arguments of the Trainer that are fitted, stored with the run and taken up by `--resume`."""


class Times(NamedTuple):
    """What parts of a run take, in seconds."""

    start: float
    """Reading the data, until the first update."""
    update: float
    validation: float


class Stopwatch(Callback):
    """Times a trial run, and ends its training after `seconds`."""

    def __init__(self, seconds: float, limit_val_batches: float | None) -> None:
        self.seconds, self.limit = seconds, limit_val_batches
        self.began = time.monotonic()
        self.started = self.validation = 0.0
        self.batches: list[tuple[float, int]] = []

    def setup(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        if self.limit is not None:  # the trial has another one
            trainer.limit_val_batches = self.limit

    def on_train_start(self, *_: Any) -> None:
        self.started = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.batches.append((now := time.monotonic(), trainer.global_step))
        if len(self.batches) >= LEAST_TIMED and now - self.started > self.seconds:
            trainer.should_stop = True  # a validation follows

    def on_validation_start(self, *_: Any) -> None:
        self.validation = -time.monotonic()

    def on_validation_end(self, *_: Any) -> None:
        self.validation += time.monotonic()

    def times(self) -> Times:
        (first, step), (last, last_step) = self.batches[len(self.batches) // 4], self.batches[-1]
        if last_step <= step:  # an epoch of a few batches
            (first, step), (last, last_step) = (self.started, 0), self.batches[-1]
        each = (last - first) / max(1, last_step - step)
        return Times(self.started - self.began, each, self.validation)


def prepared_once(prepare: Prepare) -> Prepare:
    """Return a `prepare` that reads the data once: a second call gives them with initial weights.

    For settings of the run and the optimiser that may differ, as the data and the model may not.
    """
    kept: list[Any] = []

    def once(config: RunSettings, vocabulary: Any) -> Prepared:
        if not kept:
            task, loader, validation = prepare(config, vocabulary)
            kept[:] = task, loader, validation, loader.state_dict(), deepcopy(task.state_dict())
        task, loader, validation, position, weights = kept
        loader.load_state_dict(position)
        task.load_state_dict(weights)
        task.config, task.optim = config, config.optim
        task.metadata = run_metadata(task.domain, config, task.metadata["vocabulary"])
        return task, loader, validation

    return once


def fit_to_minutes(
    domain: str,
    config: RunSettings,
    prepare: Prepare,
    trainer: Mapping[str, Any],
    minutes: float,
    resume: Resume,
) -> tuple[RunSettings, dict[str, Any]]:
    """Return the settings of a run and of its Trainer that take so many minutes on this machine.

    Fitted are the updates, the interval of validations and the warm-up, by a trial run that leaves
    nothing; its time and that of reading count. A run that goes on has its checkpoint's numbers.
    prepare: of `prepared_once`. UserError for less than an update and a validation.
    """
    began = time.monotonic()
    if resume and holds_checkpoint(config.run.folder):
        header = find_checkpoint(config.run.folder)[1]["triptych"]
        stored = {name: x for name, x in header["trainer"].items() if name in LENGTH}
        warmup = header["optim"]["schedule"]["init_args"].get("warmup_steps")
        return _warmed_up(config, warmup), {**trainer, **stored}
    seconds = 60 * minutes
    watch = Stopwatch(min(TIMED_SHARE * seconds, MOST_TIMED), trainer.get("limit_val_batches"))
    callbacks = [*(trainer.get("callbacks") or ()), watch]
    say(f"A trial run is timed, for a run of {minutes:g} minutes.")
    train(domain, config, prepare, {**trainer, "fast_dev_run": 10**6, "callbacks": callbacks})

    def planned() -> dict[str, Any]:
        times = watch.times()
        left = seconds - (time.monotonic() - began)
        return fitted(trainer, times, MARGIN * left, minutes)

    length = decided_by_rank_0(planned)
    schedule = config.optim.schedule
    least = max(1, round(WARMUP_SHARE * length["max_steps"]))
    warmup = min(getattr(schedule, "warmup_steps", 0), least)
    return _warmed_up(config, warmup), {**trainer, **length}


def fitted(trainer: Mapping[str, Any], times: Times, left: float, minutes: float) -> dict[str, Any]:
    """Return the arguments `LENGTH` for the seconds that are left; UserError for too few."""
    interval, steps = trainer.get("val_check_interval"), trainer.get("max_steps") or -1
    per_update = trainer.get("accumulate_grad_batches") or 1
    count = VALIDATIONS
    if isinstance(interval, int) and steps > 0:
        count = max(1, steps * per_update // interval)
    if times.validation > 0:
        count = min(count, max(1, int(VALIDATION_SHARE * left / times.validation)))
    updates = int((left - count * times.validation) / times.update)
    if updates < 1:
        raise UserError(
            f"--minutes {minutes:g} is too short: reading the data takes {times.start:.1f} s, an "
            f"update {times.update:.2g} s and a validation {times.validation:.1f} s, and the trial "
            "has made both once; expected more minutes"
        )
    count = min(count, updates)
    each = updates // count
    say(
        f"{each * count:,} updates of {times.update:.2g} s and {count} validations of "
        f"{times.validation:.1f} s fit into {minutes:g} minutes."
    )
    return dict(zip(LENGTH, (each * count, -1, each * per_update, None), strict=True))


def _warmed_up(config: RunSettings, steps: int | None) -> RunSettings:
    """Return the settings with a warm-up of so many updates and the same highest learning rate."""
    optim = config.optim
    own: Any = optim.schedule
    if not steps or not hasattr(own, "warmup_steps"):
        return config
    shorter = replace(own, warmup_steps=steps)
    before, now = (
        each.rate(1.0, max(1, each.warmup_steps), total_steps=10**9, d_model=1)
        for each in (own, shorter)
    )
    rate = optim.learning_rate * before / now
    return replace(config, optim=replace(optim, schedule=shorter, learning_rate=rate))
