"""`triptych train DOMAIN`: train a model from a settings file, with options that override it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from triptych.cli.options import check_checkpoint
from triptych.config.files import read_settings_file
from triptych.config.messages import Locate
from triptych.config.schema import (
    build,
    hide_group_options,
    parse_settings,
    parser_for,
    prefer_int,
    split_config,
    to_plain,
)
from triptych.domains.base import Domain
from triptych.errors import UserError
from triptych.tools import configs, recipes
from triptych.tools.download import catalogue

BATCH_SIZES = ("batch_size", "max_tokens", "evaluation_batch_size")
"""Names that domains give to the size of a batch."""


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Train and print the run's folder; raises UserError and TrainingStopped."""
    config, values, _ = read_run("train", domain, arguments, parser)

    from triptych.training.run import checks
    from triptych.training.run.processes import disconnected_by_refusal

    for sentence in unused_optimizer_settings(arguments, config.optim.optimizer):
        print(sentence, file=sys.stderr)
    # These checks precede the reading of the data, which can take minutes.
    trainer = checks.trainer_settings(values["trainer"])
    probe = checks.probe_trainer(checks.check_settings(config, trainer))
    with disconnected_by_refusal():
        folder = _train(domain, config, values, probe)
    if folder.exists() and probe.is_global_zero:
        print(f"the run is in {folder}", file=sys.stderr)
    return 0


def _train(domain: Domain, config: Any, values: Namespace, probe: Any) -> Path:
    """Start the processes, read the data, train and return the run's folder."""
    from triptych.training.engine.devices import out_of_memory_advice
    from triptych.training.lightning_fixes import start_processes
    from triptych.training.run import checks
    from triptych.training.run.folder import check_run_folder
    from triptych.training.run.processes import decided_by_rank_0, prepare_in_turn
    from triptych.training.run.trainer import train

    start_processes(probe)
    resume = values.get("resume", False)
    trainer = checks.trainer_settings(values["trainer"])
    folder = Path(config.run.directory) / config.run.name
    resumes = decided_by_rank_0(lambda: check_run_folder(folder, resume=resume))
    vocabulary, config = given_vocabulary(
        config, domain.name, folder if resumes else None, max_epochs=trainer.get("max_epochs")
    )
    prepare = partial(prepare_data, domain)
    task, train_loader, validation_loader = prepare_in_turn(prepare, config, vocabulary)
    checks.check_batches(probe, len(train_loader), len(validation_loader))
    with out_of_memory_advice(memory_advice(config)):
        return train(task, train_loader, validation_loader, trainer, resume=resume)


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
    try:
        return domain.prepare(config, vocabulary)
    except UserError as error:
        recipes.advise(error)
        folder = getattr(getattr(config.data, "source", None), "directory", None)
        if folder is None or Path(folder).expanduser().exists():
            raise
        known = catalogue.of_folder(folder)
        fetch = f" (`triptych data fetch {known.name}` downloads them)" if known else ""
        free = ", ".join(sorted(configs.without_files(domain.name), key=len)[:3])
        listed = f"such as {free}; `triptych configs {domain.name}` marks them with *"
        others = f", or take a config that reads no files ({listed})" if free else ""
        raise UserError(
            f"{error}; set --data.source.directory to the folder of your data{fetch}{others}"
        ) from error


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


def given_vocabulary(
    config: Any, domain: str, resumed: Path | None, *, max_epochs: int | None
) -> tuple[Any, Any]:
    """Return the vocabulary that comes with the initial weights, and the settings.

    resumed: folder of the run to resume. The vocabulary is None where the run builds its own; the
    settings of a resumed run keep the initial weights of its start. Raises UserError, before the
    data are read, where the run cannot be resumed, where the weights belong to another model and
    where a part to train is no part of it.
    """
    from triptych.training.finetune.initial import is_other_task, read_initial
    from triptych.training.finetune.parts import check_parts
    from triptych.training.run.checkpoint import core_weights
    from triptych.training.run.resume import check_resumable, find_checkpoint

    start, settings = config.run.start, to_plain(config)
    if resumed is not None:
        latest = find_checkpoint(resumed)
        check_resumable(*latest, domain=domain, settings=settings, max_epochs=max_epochs)
        header = latest[1]["triptych"]
        before = header["run"]["start"]
        if before["init_from"] is None:
            return None, config
        if start.init_from is None:
            names = ("init_from", "init_vocabulary")
            start = replace(start, **{name: before[name] for name in names})
    elif start.init_from is None:
        for name in ("train_only", "lora_rank"):
            if getattr(config.run.finetune, name):
                raise UserError(
                    f"run.finetune.{name} is set without run.start.init_from, so that new random "
                    "weights would never be trained; set run.start.init_from to a trained model"
                )
        return None, config
    else:
        check_checkpoint(start.init_from, "run.start.init_from")
        content = read_initial(start.init_from, domain=domain, settings=settings)
        if not is_other_task(content["triptych"], settings):
            check_parts(config, core_weights(content["state_dict"]))
        if start.init_vocabulary == "data":
            return None, config
        header = content["triptych"]
    return header["vocabulary"], replace(config, run=replace(config.run, start=start))


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
