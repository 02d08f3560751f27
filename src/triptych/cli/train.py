"""`triptych train DOMAIN`: train a model from a settings file and options that override it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triptych.cli.options import check_checkpoint
from triptych.config.files import read_settings_file
from triptych.config.parser import parser_for, split_config
from triptych.config.schema import build, to_plain
from triptych.domains.base import Domain
from triptych.domains.files import why_unwritable
from triptych.errors import UserError
from triptych.pretrained import PREFIX


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Train and say where the results are; raises UserError and TrainingStopped."""
    check_no_pretrained(arguments)
    wants_words = any(
        a in ("-h", "--help") or a.startswith("--print_") or a.partition("=")[0].endswith(".help")
        for a in arguments
    )
    paths, _ = split_config(arguments)
    if not paths and not wants_words:
        raise UserError(
            f"train {domain.name} needs a settings file: triptych train {domain.name} --config "
            f"FILE (complete ones are in configs/{domain.name}/)"
        )
    for path in paths:  # the answer to a missing file or a slip in the YAML waits for no import
        read_settings_file(path)

    from triptych.cli.trainer import check_batches, check_trainer, trainer_settings
    from triptych.training.arguments import check_patience, choose_precision, on_cuda
    from triptych.training.compiled import check_compiler
    from triptych.training.muon import check_muon
    from triptych.training.trainer import train
    from triptych.training.update import check_schedule

    config_class = domain.config_class()
    parser = training_parser(domain.name, config_class)
    values, locate = parser.parse_settings(arguments)
    config = build(config_class, values, locate=locate)
    resume = values.get("resume", False)
    # Before the data are read, which takes minutes for a large folder of music.
    trainer = trainer_settings(values["trainer"])
    tried = check_trainer(trainer)
    check_patience(config.run.early_stopping_patience, trainer)
    check_schedule(config.optim, endless=tried.max_steps == -1 and tried.max_epochs in (None, -1))
    if trainer.get("precision") is None:
        choose_precision(config.run.precision, trainer, config.model.transformer.d_model)
    if config.run.compile:
        check_compiler("cuda" if on_cuda(trainer) else "cpu")
    if config.optim.optimizer == "muon":
        check_muon()
    folder = Path(config.run.directory) / config.run.name
    check_run_folder(folder, resume=resume)
    if resume:
        vocabulary, config = taken_up(folder, domain=domain.name, config=config, trainer=trainer)
    else:
        vocabulary = given_vocabulary(config, domain=domain.name)

    task, train_loader, validation_loader = domain.prepare(config, vocabulary)
    settings = trainer_settings(values["trainer"])
    check_batches(tried, len(train_loader), len(validation_loader))
    folder = train(task, train_loader, validation_loader, config.run, settings, resume=resume)
    if folder.exists():
        print(f"the run is in {folder}", file=sys.stderr)
    return 0


def training_parser(domain: str, config_class: type) -> Any:
    """The parser of `triptych train DOMAIN`: data, model, optim, run, and Lightning's trainer."""
    from pytorch_lightning import Trainer

    from triptych.cli.trainer import NOT_OPTIONS

    parser = parser_for(
        config_class,
        prog=f"triptych train {domain}",
        description=f"Train a model of the domain {domain}. Every setting below is a key of the "
        "settings file too: --run.seed 8 is seed: 8 under run.",
    )
    parser.usage = "%(prog)s --config FILE [--run.seed 8 ...] [--trainer.max_steps 500 ...]"
    parser.add_argument(
        "--resume",
        action="store_true",
        default=argparse.SUPPRESS,  # an order for this once, so --print_config leaves it out
        help="Go on from the last good checkpoint of the run of this name, with the same order of "
        "the data; without it an existing run is never touched. (default: off)",
    )
    parser.add_class_arguments(Trainer, "trainer", skip=NOT_OPTIONS)
    parser.prefer_int()
    parser.groups["trainer"].title = "Lightning's Trainer, in its own words"
    parser.hide_group_options()
    return parser


def check_no_pretrained(arguments: Sequence[str]) -> None:
    """Raise UserError where a model of the package is named to train on from."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if "--run.init_from" in (before, argument.partition("=")[0]):
            continue
        value = argument.partition("=")[2] if argument.startswith("--") else argument
        if value.startswith(PREFIX):
            raise UserError(
                f"train cannot go on from {value}: a pretrained model holds rounded weights and no "
                "state of the optimiser; expected --resume alone, which goes on with the run of "
                f"--run.name, or --run.init_from {value}, a new run with its weights"
            )


def check_run_folder(folder: Path, *, resume: bool) -> None:
    """Raise UserError where the run could not begin, or not be resumed, in this folder.

    Makes nothing. Only the first of several processes looks: it has made the folder by the time
    that the others come here.
    """
    from triptych.training.run_folder import holds_checkpoint, is_first_process, refuse_overwriting

    if not is_first_process():
        return
    if not (resume and holds_checkpoint(folder)):
        refuse_overwriting(folder, resume=resume)
    if (why := why_unwritable(folder / "checkpoints")) is not None:
        raise UserError(
            f"the folder {folder} of the run cannot be written: {why}; choose another with "
            "--run.directory"
        )


def given_vocabulary(config: Any, *, domain: str) -> Any:
    """The vocabulary of the weights that a new run starts with; None where it starts with none.

    Raises UserError, before the data are read, where they belong to another model.
    """
    from triptych.training.init_from import check_start

    if config.run.init_from is None:
        return None
    check_checkpoint(config.run.init_from, "run.init_from")
    content = check_start(config.run.init_from, domain=domain, config=to_plain(config))
    return content["triptych"]["vocabulary"]


def taken_up(folder: Path, *, domain: str, config: Any, trainer: dict[str, Any]) -> tuple[Any, Any]:
    """The vocabulary that the run in the folder started with, None where it learnt its own, and
    the settings with where it started, which stays true however often it is resumed.

    Raises UserError, before the data are read, where the run cannot be resumed with these.
    """
    from triptych.training.run_folder import (
        check_epochs,
        check_same_model,
        check_seed,
        find_checkpoint,
    )

    found = find_checkpoint(folder, tell=lambda _: None)  # `train` tells it
    if found is None:
        return None, config
    check_same_model(*found, domain=domain, config=to_plain(config))
    check_seed(*found, config.run.seed)
    check_epochs(*found, trainer.get("max_epochs"))
    block = found[1]["triptych"]
    started = block["config"]["run"].get("init_from")
    if started is None:
        return None, config
    if config.run.init_from is None:
        config = replace(config, run=replace(config.run, init_from=started))
    return block["vocabulary"], config
