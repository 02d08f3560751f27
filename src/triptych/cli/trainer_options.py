"""Arguments of Lightning's Trainer as options, checked before any data are read."""

from __future__ import annotations

import argparse
import inspect
import math
from typing import Any

from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning import Trainer
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher

from triptych.config.hints import import_class
from triptych.errors import UserError
from triptych.training.callbacks.progress import quiet_lightning
from triptych.training.trainer import NOT_ALLOWED, OBJECTS, check_arguments

PARAMETERS = inspect.signature(Trainer.__init__).parameters
"""All arguments of Lightning's Trainer, with their defaults."""

# `overfit_batches` stays an option, so that its refusal names the alternative.
NOT_OPTIONS = ({*NOT_ALLOWED, *OBJECTS, "model_registry"} - {"overfit_batches"}) & set(PARAMETERS)
"""Arguments that the run sets itself or that a command line cannot express."""

_SMALLEST = {"accumulate_grad_batches": 1, "gradient_clip_val": 0, "log_every_n_steps": 1}


def trainer_settings(values: Any) -> dict[str, Any]:
    """Return the arguments for Lightning's Trainer that differ from its own defaults."""
    given = {k: value for k, value in vars(values).items() if value != PARAMETERS[k].default}
    return {name: _lightning_value(name, value) for name, value in given.items()}


def check_trainer(settings: dict[str, Any]) -> Trainer:
    """Raise UserError for values that Lightning's Trainer refuses, at once or in its first step.

    Returns the Trainer that was built to find out. It holds the strategy object of `settings`, so
    build new settings for the run.
    """
    quiet_lightning()
    for name, smallest in _SMALLEST.items():
        value = settings.get(name)
        if value is not None and value < smallest:
            raise UserError(f"trainer.{name} must be at least {smallest}, got {value}")
    interval = settings.get("val_check_interval")
    if isinstance(interval, int | float) and interval <= 0:
        raise UserError(
            f"trainer.val_check_interval must be above 0, got {interval}; for no validation set "
            "trainer.limit_val_batches to 0"
        )
    for name in ("max_steps", "max_epochs", "limit_train_batches"):
        if settings.get(name) == 0:
            raise UserError(f"trainer.{name} is 0; nothing would be trained")
    own: dict[str, Any] = {"enable_checkpointing": False, "enable_model_summary": False}
    arguments = {**check_arguments(settings), "logger": False, "enable_progress_bar": False}
    try:
        probe_trainer = Trainer(**arguments, **own)
    except (MisconfigurationException, ValueError, TypeError, ImportError) as error:
        names = [f"trainer.{name}" for name in settings if name in str(error)]
        about = f" ({', '.join(names)})" if names else ""
        raise UserError(f"Lightning's Trainer refuses its settings{about}: {error}") from error
    if isinstance(probe_trainer.strategy.launcher, _MultiProcessingLauncher):
        # State of its child processes is lost to the process that started the run.
        raise UserError(
            f"trainer.strategy {settings.get('strategy', 'auto')} trains in copies of this process "
            "(fork or spawn), which Triptych does not support; expected another, such as ddp"
        )
    return probe_trainer


def check_batches(probe_trainer: Trainer, n_train: int, n_validation: int) -> None:
    """Raise UserError where a limit leaves no batch, or where no epoch is long enough to validate.

    probe_trainer: from `check_trainer`. n_train, n_validation: batches of all processes together.
    """
    left = {}
    for name, count in (("train", n_train), ("val", n_validation)):
        each = -(-count // probe_trainer.world_size)
        limit = getattr(probe_trainer, f"limit_{name}_batches")
        left[name] = min(each, limit) if isinstance(limit, int) else int(each * limit)
        if limit > 0 and left[name] == 0:
            raise UserError(
                f"trainer.limit_{name}_batches is {limit}, which leaves none of {each} batches; "
                f"expected at least {math.ceil(1000 / each) / 1000:g}, or a whole number of batches"
            )
    interval, by_epoch = (
        probe_trainer.val_check_interval,
        probe_trainer.check_val_every_n_epoch is not None,
    )
    validates = by_epoch and left["val"] > 0
    if validates and isinstance(interval, int) and interval > left["train"]:
        raise UserError(
            f"trainer.val_check_interval is {interval}, but an epoch has {left['train']} batches: "
            "set trainer.check_val_every_n_epoch to null, so that steps are counted across epochs, "
            "or give a smaller interval"
        )


def _lightning_value(name: str, value: Any) -> Any:
    if "class_path" in getattr(value, "__dict__", {}):  # a strategy or accelerator by its class
        arguments = vars(value.get("init_args") or argparse.Namespace()).items()
        kind = import_class(value.class_path)
        try:
            return kind(**{k: v for k, v in arguments if v is not None})
        except (MisconfigurationException, ValueError, TypeError, ImportError) as error:
            raise UserError(f"trainer.{name} cannot be {value.class_path}: {error}") from error
    if name == "devices" and isinstance(value, str) and value.isdigit():
        return int(value)  # the parser tries text before numbers here
    return value
