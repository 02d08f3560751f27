"""Checks of a run's settings, most before its data are read, and Lightning's Trainer."""

import argparse
import inspect
import math
import multiprocessing
from pkgutil import resolve_name
from typing import Any

import pytorch_lightning as pl
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import Checkpoint

from triptych.errors import UserError
from triptych.training.engine.devices import choose_precision
from triptych.training.lightning_fixes import AtomicCheckpointIO, copies_this_process, profiler_of
from triptych.training.run.settings import RunSettings

PARAMETERS = inspect.signature(pl.Trainer.__init__).parameters
"""All arguments of Lightning's Trainer, with their defaults."""

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

# `overfit_batches` stays an option, so that its refusal names the alternative.
NOT_OPTIONS = ({*NOT_ALLOWED, "plugins", "model_registry"} - {"overfit_batches"}) & set(PARAMETERS)
"""Arguments that the run sets itself or that a command line cannot express."""

SHARDED = "fsdp"
"""Value of trainer.strategy for `ShardedStrategy`."""
_SHARDED = ("fsdp", "deepspeed", "modelparallel")
"""Words in the names of strategies in which no process has the whole model."""

_SMALLEST = {"accumulate_grad_batches": 1, "gradient_clip_val": 0, "log_every_n_steps": 1}
_REFUSALS = (MisconfigurationException, ValueError, TypeError, ImportError)


def trainer_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parsed options `--trainer....` that differ from the defaults of the Trainer."""
    return {
        name: _argument(name, value)
        for name, value in vars(options).items()
        if value != PARAMETERS[name].default
    }


def _argument(name: str, value: Any) -> Any:
    if isinstance(value, list):  # callbacks or loggers
        return [_argument(name, item) for item in value]
    if "class_path" in getattr(value, "__dict__", {}):  # an object by its class
        arguments = vars(value.get("init_args") or argparse.Namespace()).items()
        kind = resolve_name(value.class_path)
        try:
            return kind(**{k: v for k, v in arguments if v is not None})
        except _REFUSALS as error:
            raise UserError(f"trainer.{name} cannot be {value.class_path}: {error}") from error
    if name == "devices" and isinstance(value, str) and value.isdigit():
        return int(value)  # the parser tries text before numbers here
    return value


def check_settings(config: RunSettings, trainer: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for Lightning's Trainer, from those of the user, with a precision.

    Raises UserError for the first setting that no run can have on this machine.
    """
    run, optim = config.run, config.optim
    for name, value in trainer.items():
        if name in NOT_ALLOWED and value is not None and value != PARAMETERS[name].default:
            raise UserError(f"trainer.{name} is set by the run: {NOT_ALLOWED[name]}")
        if name in _SMALLEST and value is not None and value < _SMALLEST[name]:
            raise UserError(f"trainer.{name} must be at least {_SMALLEST[name]}, got {value}")
        if name in ("max_steps", "max_epochs", "limit_train_batches") and value == 0:
            raise UserError(f"trainer.{name} is 0; nothing would be trained")
    check_strategy(config, trainer)
    interval = trainer.get("val_check_interval")
    if isinstance(interval, int | float) and interval <= 0:
        raise UserError(
            f"trainer.val_check_interval must be above 0, got {interval}; for no validation set "
            "trainer.limit_val_batches to 0"
        )
    endless = not trainer.get("fast_dev_run") and all(
        trainer.get(name) in (None, -1) for name in ("max_steps", "max_epochs")
    )
    if endless and trainer.get("max_time") is None:
        raise UserError(
            "nothing says when to stop: set --trainer.max_steps (or trainer.max_epochs or "
            "trainer.max_time)"
        )
    if endless and optim.schedule.needs_end:
        raise UserError(
            f"optim.schedule is {type(optim.schedule).__name__}, which needs an end: set "
            "trainer.max_steps or trainer.max_epochs"
        )
    workers = run.compute.data_workers
    if workers and "fork" not in multiprocessing.get_all_start_methods():
        raise UserError(
            f"run.compute.data_workers is {workers}, but this system cannot fork processes; leave "
            "it at 0"
        )
    kept = {name: v for name, v in trainer.items() if name not in {*NOT_ALLOWED, *OBJECTS}}
    # One validation batch before the first step shows errors in validation early.
    if kept.get("num_sanity_val_steps") is None:
        kept["num_sanity_val_steps"] = 1
    return {**kept, "precision": choose_precision(trainer)}


def check_strategy(config: RunSettings, trainer: dict[str, Any]) -> None:
    """Raise UserError for a strategy that shares the weights otherwise than `ShardedStrategy`."""
    strategy = trainer.get("strategy") or "auto"
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    if name != SHARDED and any(word in name.lower() for word in _SHARDED):
        raise UserError(
            f"trainer.strategy is {name}; to share the weights among the processes use "
            f"{SHARDED}, which is PyTorch's FSDP2"
        )
    if name == SHARDED:
        run, precision = config.run, str(trainer.get("precision"))
        for setting, value in (
            ("run.compute.compile", run.compute.compile),
            ("run.log.histograms", run.log.histograms),
            ("run.start.freeze_word_vectors", run.start.freeze_word_vectors),
            ("trainer.precision", precision if precision.startswith("16") else None),
        ):
            if value:
                raise UserError(
                    f"{setting} is {value}, which needs whole weights; trainer.strategy {SHARDED} "
                    "shares them among the processes"
                )


def build_trainer(config: RunSettings, trainer: dict[str, Any], keep: Checkpoint) -> pl.Trainer:
    """Return Lightning's Trainer of a run; UserError as `check_settings`, or for its refusals."""
    arguments = check_settings(config, trainer)
    folder = config.run.folder
    own: dict[str, Any] = {
        "profiler": profiler_of(arguments.get("profiler"), folder),
        "callbacks": [keep, *_listed(trainer.get("callbacks"))],
        "logger": _listed(trainer.get("logger")),
        "plugins": [AtomicCheckpointIO(), *_listed(trainer.get("plugins"))],
        "default_root_dir": str(folder),
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    if arguments.get("strategy") == SHARDED:
        from triptych.training.run.sharding import ShardedStrategy

        own["strategy"] = ShardedStrategy()
    try:
        built = pl.Trainer(**{**arguments, **own})
    except _REFUSALS as error:
        names = [f"trainer.{name}" for name in arguments if name in str(error)]
        about = f" ({', '.join(names)})" if names else ""
        raise UserError(f"Lightning's Trainer refuses its settings{about}: {error}") from error
    if copies_this_process(built):
        raise UserError(
            f"trainer.strategy {arguments.get('strategy', 'auto')} trains in copies of this "
            "process (fork or spawn), which Triptych does not support; expected another, such as "
            "ddp"
        )
    return built


def _listed(value: Any) -> list[Any]:
    """Return an argument of the Trainer as a list: empty for None, True and False."""
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check_batches(trainer: pl.Trainer, n_train: int, n_validation: int) -> None:
    """Raise UserError where a limit leaves no batch, or no epoch is long enough to validate."""
    left = {}
    for name, each in (("train", n_train), ("val", n_validation)):
        limit = getattr(trainer, f"limit_{name}_batches")
        left[name] = min(each, limit) if isinstance(limit, int) else int(each * limit)
        if limit > 0 and left[name] == 0:
            raise UserError(
                f"trainer.limit_{name}_batches is {limit}, which leaves none of {each} batches; "
                f"expected at least {math.ceil(1000 / each) / 1000:g}, or a whole number of batches"
            )
    interval = trainer.val_check_interval
    validates = trainer.check_val_every_n_epoch is not None and left["val"] > 0
    if validates and isinstance(interval, int) and interval > left["train"]:
        raise UserError(
            f"trainer.val_check_interval is {interval}, but an epoch has {left['train']} batches: "
            "set trainer.check_val_every_n_epoch to null, so that steps are counted across epochs, "
            "or give a smaller interval"
        )
