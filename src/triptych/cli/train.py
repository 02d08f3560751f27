"""`triptych train DOMAIN`: train a model from a settings file, with options that override it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from triptych.cli.options import check_checkpoint, data_advice
from triptych.config.files import read_settings_file
from triptych.config.messages import Locate
from triptych.config.schema import (
    build,
    hide_group_options,
    parse_settings,
    parser_for,
    prefer_int,
    split_config,
)
from triptych.domains.base import Domain
from triptych.errors import UserError

BATCH_SIZES = ("batch_size", "max_tokens", "evaluation_batch_size")
"""Names that domains give to the size of a batch."""


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Train and print the run's folder; raises UserError and TrainingStopped."""
    config, values, _ = read_run("train", domain, arguments, parser)

    from triptych.files.reading import rank_and_world
    from triptych.training.engine.devices import out_of_memory_advice
    from triptych.training.run import trainer
    from triptych.training.run.checks import trainer_settings

    for sentence in unused_optimizer_settings(arguments, config.optim.optimizer):
        print(sentence, file=sys.stderr)
    prepare, resume = partial(prepare_data, domain), values.get("resume", False)
    if (initial := config.run.start.init_from) is not None and not resume:
        check_checkpoint(initial, "run.start.init_from")
    with out_of_memory_advice(memory_advice(config)):
        folder = trainer.train(
            domain.name, config, prepare, trainer_settings(values["trainer"]), resume
        )
    if folder.exists() and rank_and_world()[0] == 0:
        print(f"the run is in {folder}", file=sys.stderr)
    return 0


def read_run(
    command: str,
    domain: Domain,
    arguments: Sequence[str],
    make_parser: Callable[[Domain], ArgumentParser],
) -> tuple[Any, Namespace, Locate]:
    """Return the settings of a run, all values of the command line, and where a key was set.

    Raises UserError, before heavy imports where there is no settings file or a slip in its YAML.
    Arguments that ask for a text, such as --help, need no file.
    """
    wants_text = any(
        a in ("-h", "--help") or a.startswith("--print_") or a.partition("=")[0].endswith(".help")
        for a in arguments
    )
    paths, _ = split_config(arguments)
    if not paths and not wants_text:
        raise UserError(
            f"{command} {domain.name} needs a settings file: triptych {command} {domain.name} "
            f"--config FILE (`triptych configs {domain.name}` lists those that come with Triptych)"
        )
    for path in paths:
        read_settings_file(path)
    values, locate = parse_settings(make_parser(domain), arguments)
    return build(domain.config_class(), values, locate=locate), values, locate


def unused_optimizer_settings(arguments: Sequence[str], optimizer: Any) -> Iterator[str]:
    """Yield a sentence about settings of a file's optimiser that the optimiser of a run lacks.

    Such as the weight decay of AdamW in a file, with Adam on the command line.
    """
    kind = type(optimizer).__name__
    for path in split_config(arguments)[0]:
        optim = read_settings_file(path).content.get("optim") or {}
        given = optim.get("optimizer")
        settings = (given.get("init_args") or {}) if isinstance(given, dict) else {}
        unused = [f"{name} {x}" for name, x in settings.items() if not hasattr(optimizer, name)]
        if unused:
            yield f"optim.optimizer is {kind}, which leaves out {', '.join(unused)} of {path}"


def prepare_data(domain: Domain, config: Any, vocabulary: Any = None) -> Any:
    """Return what `domain.prepare` returns; where the data are missing, say how to get them."""
    with data_advice(config.data, "--data.source.directory", domain.name):
        return domain.prepare(config, vocabulary)


def memory_advice(config: Any) -> str:
    """Return what to change where the memory of a GPU is full, with the names of the settings."""
    sizes = [f"data.{name}" for name in BATCH_SIZES if hasattr(config.data, name)]
    return (
        f"lower {' and '.join(sizes) or 'the batch size'} and raise "
        "trainer.accumulate_grad_batches by the same factor, or set "
        "model.transformer.activation_checkpointing to true"
    )


def parser(domain: Domain) -> ArgumentParser:
    """Return the parser of the settings: data, model, optim, run, and Lightning's trainer."""
    from pytorch_lightning import Trainer

    from triptych.training.engine.devices import Precision
    from triptych.training.run.checks import NOT_OPTIONS

    settings = parser_for(
        domain.config_class(),
        prog=f"triptych train {domain.name}",
        description=f"Train a model of the domain {domain.name}. Every setting below is also a key "
        "of the settings file: --run.seed 8 is seed: 8 under run.",
    )
    settings.usage = "%(prog)s --config FILE [--run.seed 8 ...] [--trainer.max_steps 500 ...]"
    settings.add_argument(
        "--resume",
        nargs="?",
        const=True,
        choices=[True, "auto"],
        metavar="auto",
        default=argparse.SUPPRESS,  # no setting of the run, so --print_config leaves it out
        help="Continue the run of this name from its last good checkpoint, with the same order of "
        "the data; without it an existing run is never changed. auto: continue the run if it has a "
        "checkpoint, begin it otherwise. (default: off)",
    )
    settings.add_class_arguments(Trainer, "trainer", skip={*NOT_OPTIONS, "precision"})
    settings.add_argument(
        "--trainer.precision",
        type=Precision,
        default="auto",
        help="Number formats of training; auto is bf16-mixed on hardware with bf16, else 32-true. "
        "Validation computes in the format of the weights.",
    )
    prefer_int(settings)
    if settings.groups is not None:
        settings.groups["trainer"].title = "Arguments of Lightning's Trainer"
    hide_group_options(settings)
    return settings


class Pack:
    """`triptych pack DOMAIN`: the data of a run in files that training maps into memory."""

    @staticmethod
    def run(domain: Domain, arguments: Sequence[str]) -> int:
        """Write the packed data; raises UserError."""
        config, values, _ = read_run("pack", domain, arguments, Pack.parser)
        if "out" not in values:
            raise UserError(f"pack {domain.name} needs --out FOLDER, a new folder")
        print(domain.pack(config, values["out"]), file=sys.stderr)
        return 0

    @staticmethod
    def parser(domain: Domain) -> ArgumentParser:
        """Return the parser of `triptych train` with the folder to write."""
        settings = parser(domain)
        settings.prog = f"triptych pack {domain.name}"
        settings.usage = "%(prog)s --config FILE --out FOLDER"
        settings.description = (
            f"Write the training and validation data of the domain {domain.name} into files that "
            "training maps into memory (--data.packed FOLDER), for data larger than memory. The "
            "settings are those of `triptych train`."
        )
        settings.add_argument(
            "--out",
            type=str,
            default=argparse.SUPPRESS,  # no setting of the run
            help="New folder for the packed data.",
        )
        return settings
