"""Arguments of Lightning's Trainer as options: which, as what, and refused before time is spent."""

from __future__ import annotations

import inspect
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from triptych.errors import UserError
from triptych.training.arguments import check_arguments
from triptych.training.progress import quiet_lightning
from triptych.training.setting_errors import import_class

PARAMETERS = inspect.signature(Trainer.__init__).parameters
"""Everything that Lightning's Trainer takes, with its defaults."""

# What the run settles itself, or what has no form on a command line. Everything else of the
# Lightning Trainer is an option.
NOT_OPTIONS = {
    "logger", "callbacks", "plugins", "default_root_dir", "enable_checkpointing",
    "enable_model_summary", "barebones", "model_registry",
} & set(PARAMETERS)  # fmt: skip

_SMALLEST = {"accumulate_grad_batches": 1, "gradient_clip_val": 0, "log_every_n_steps": 1}


def trainer_settings(values: Any) -> dict[str, Any]:
    """Arguments for Lightning's Trainer: those that differ from its own defaults."""
    given = {k: value for k, value in vars(values).items() if value != PARAMETERS[k].default}
    return {name: _lightning_value(name, value) for name, value in given.items()}


def check_trainer(settings: dict[str, Any]) -> None:
    """Raise UserError for values that Lightning's Trainer refuses, now or in its first step.

    The Trainer that is made to find out is thrown away, and a strategy in `settings` with it.
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
    own = dict.fromkeys(("enable_checkpointing", "enable_model_summary"), False)
    arguments = {**check_arguments(settings), "logger": False, "enable_progress_bar": False}
    try:
        Trainer(**arguments, **own)
    except (MisconfigurationException, ValueError, TypeError, ImportError) as error:
        names = [f"trainer.{name}" for name in settings if name in str(error)]
        about = f" ({', '.join(names)})" if names else ""
        raise UserError(f"Lightning's Trainer refuses its settings{about}: {error}") from error


def check_interval(settings: dict[str, Any], n_batches: int) -> None:
    """Raise UserError where validation would stand beyond the end of every epoch.

    n_batches: training batches of an epoch.
    """
    interval = settings.get("val_check_interval")
    by_epoch = settings.get("check_val_every_n_epoch", 1) is not None
    if by_epoch and isinstance(interval, int) and interval > n_batches:
        raise UserError(
            f"trainer.val_check_interval is {interval}, but an epoch has {n_batches} batches: set "
            "trainer.check_val_every_n_epoch to null, so that steps are counted across epochs, or "
            "give a smaller interval"
        )


def _lightning_value(name: str, value: Any) -> Any:
    if "class_path" in getattr(value, "__dict__", {}):  # a strategy or accelerator by its class
        arguments = vars(value.get("init_args")).items()
        return import_class(value.class_path)(**{k: v for k, v in arguments if v is not None})
    if name == "devices" and isinstance(value, str) and value.isdigit():
        return int(value)  # the parser tries text before numbers here
    return value
