"""`triptych train DOMAIN`: train a model from a settings file and options that override it."""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triptych.errors import UserError
from triptych.training.setting_errors import import_class
from triptych.training.setting_files import read_settings_file

# What the run settles itself, or what has no form on a command line. Everything else of the
# Lightning Trainer is an option.
_NOT_OPTIONS = {
    "logger", "callbacks", "plugins", "default_root_dir", "enable_checkpointing",
    "enable_model_summary", "barebones", "model_registry",
}  # fmt: skip


def run(domain: str, arguments: Sequence[str]) -> int:
    """Train and say where the results are; raises UserError and TrainingStopped."""
    wants_words = any(a in ("-h", "--help") or a.startswith("--print_") for a in arguments)
    paths = _config_paths(arguments)
    if not paths and not wants_words:
        raise UserError(
            f"train {domain} needs a settings file: triptych train {domain} --config FILE "
            f"(the ready ones are in configs/{domain}/)"
        )
    for path in paths:  # the answer to a missing file or a slip in the YAML waits for no import
        read_settings_file(path)

    from triptych.training.run import train
    from triptych.training.settings import build

    task_module = importlib.import_module(f"triptych.domains.{domain}.task")
    parser = training_parser(domain, task_module.Config)
    values, place = parser.parse_settings(arguments)
    config = build(task_module.Config, values, place=place)
    task, train_loader, validation_loader = task_module.prepare(config)
    folder = train(
        task,
        train_loader,
        validation_loader,
        config.run,
        trainer_settings(values["trainer"]),
        resume="resume" in values,
    )
    print(f"the run is in {folder}", file=sys.stderr)
    return 0


def training_parser(domain: str, config_class: type) -> Any:
    """The parser of `triptych train DOMAIN`: data, model, optim, run, and Lightning's trainer."""
    from pytorch_lightning import Trainer

    from triptych.training.settings import parser_for

    parser = parser_for(
        config_class,
        prog=f"triptych train {domain}",
        description=f"Train a model of the domain {domain}.",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        default=argparse.SUPPRESS,  # an order for this once, so --print_config leaves it out
        help="Go on from the last good checkpoint of the run of this name, with the same order of "
        "the data; without it an existing run is never touched.",
    )
    parser.add_class_arguments(Trainer, "trainer", skip=_NOT_OPTIONS & _trainer_parameters())
    parser.groups["trainer"].title = "Lightning's Trainer, in its own words"
    return parser


def trainer_settings(values: Any) -> dict[str, Any]:
    """Arguments for Lightning's Trainer: those that differ from its own defaults."""
    from pytorch_lightning import Trainer

    defaults = inspect.signature(Trainer.__init__).parameters
    given = {name: value for name, value in vars(values).items() if value != defaults[name].default}
    return {name: _lightning_value(name, value) for name, value in given.items()}


def _lightning_value(name: str, value: Any) -> Any:
    if "class_path" in getattr(value, "__dict__", {}):  # a strategy or accelerator by its class
        arguments = vars(value.get("init_args")).items()
        return import_class(value.class_path)(**{k: v for k, v in arguments if v is not None})
    if name == "devices" and isinstance(value, str) and value.isdigit():
        return int(value)  # the parser tries text before numbers here
    return value


def _trainer_parameters() -> set[str]:
    from pytorch_lightning import Trainer

    return set(inspect.signature(Trainer.__init__).parameters)


def _config_paths(arguments: Sequence[str]) -> list[Path]:
    from triptych.training.settings import split_config

    return split_config(arguments)[0]
