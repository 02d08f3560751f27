"""From a command line to options: the parser of every command, and checks of its values."""

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from triptych.cli.main import COMMANDS
from triptych.config import schema
from triptych.config.files import read_settings_file
from triptych.config.messages import ON_PATH, module_exists
from triptych.domains.base import Domain
from triptych.domains.options import CommandOptions, PluginOptions, check_checkpoint
from triptych.errors import UserError
from triptych.files.results import check_input_file


def options_class(name: str, domain: Domain | None = None) -> type[CommandOptions]:
    """Return the class of a command's options."""
    command = COMMANDS[name]
    options: type[CommandOptions]
    if domain is not None and not command.has_settings:
        options = getattr(domain, command.options)
    else:
        options = getattr(found := command.load(), "Options", found)
    return options


def parser_of(name: str, domain: Domain | None = None) -> ArgumentParser:
    """Return the parser of a command: of its options, and of the settings of a run if it reads any.

    These are data, model, optim and run of the domain, and the arguments of Lightning's Trainer.
    """
    command, options = COMMANDS[name], options_class(name, domain)
    settings: list[type] = []
    prog, usage = f"triptych {name}", command.usage
    if domain is not None:
        prog, usage = f"{prog} {domain.name}", usage.removeprefix("DOMAIN ")
        settings = [domain.config_class()] if command.has_settings else []
    words: dict[str, dict[str, Any]] = {}
    for kind in reversed(options.__mro__):
        words |= vars(kind).get("parser_arguments", {})
    parser = schema.parser_for(
        *settings,
        options,
        prog=prog,
        description=inspect.getdoc(options),
        config=command.has_settings,
        skip={word.lstrip("-") for word in words},
    )
    parser.usage = f"{prog} {usage} [OPTIONS]"
    for word, form in words.items():
        parser.add_argument(word, **form)
    if command.has_settings:
        _add_trainer(parser)
    return parser


def _add_trainer(parser: ArgumentParser) -> None:
    from pytorch_lightning import Trainer

    from triptych.training.engine.devices import Precision
    from triptych.training.run.checks import NOT_OPTIONS

    parser.add_class_arguments(Trainer, "trainer", skip={*NOT_OPTIONS, "precision"})
    parser.add_argument(
        "--trainer.precision",
        type=Precision,
        default="auto",
        help="Number formats of training; auto is bf16-mixed on hardware with bf16, else 32-true. "
        "Validation computes in the format of the weights.",
    )
    schema.prefer_int(parser)
    if parser.groups is not None:
        parser.groups["trainer"].title = "Arguments of Lightning's Trainer"
    schema.hide_group_options(parser)


def read_options(name: str, arguments: Sequence[str], domain: Domain | None = None) -> Any:
    """Return the options, after importing their plugin; UserError for a wrong value or file."""
    values, locate = schema.parse_settings(parser_of(name, domain), arguments)
    options = schema.build(options_class(name, domain), values, locate=locate)
    if isinstance(options, PluginOptions):
        for path in options.checkpoints():
            check_checkpoint(path)
        if options.plugin is not None:
            if not module_exists(plugin := options.plugin):
                raise UserError(f"--plugin {plugin} is no module that Python can import; {ON_PATH}")
            import_module(plugin)
    for option, expected in options.input_files().items():
        if (value := getattr(options, option)) is not None:
            check_input_file(value, option, expected=expected)
    return options


def read_run(name: str, arguments: Sequence[str], domain: Domain) -> tuple[Any, Any, Namespace]:
    """Return the settings of a run, the options of the command, and those of Lightning's Trainer.

    Raises UserError, before heavy imports where there is no settings file or a slip in its YAML.
    Arguments that ask for a text, such as --help, need no file.
    """
    wants_text = any(
        a in ("-h", "--help") or a.startswith("--print_") or a.partition("=")[0].endswith(".help")
        for a in arguments
    )
    paths, _ = schema.split_config(arguments)
    if not paths and not wants_text:
        raise UserError(
            f"{name} {domain.name} needs a settings file: triptych {name} {domain.name} "
            f"--config FILE (`triptych configs {domain.name}` lists those that come with Triptych)"
        )
    for path in paths:
        read_settings_file(path)
    values, locate = schema.parse_settings(parser_of(name, domain), arguments)
    config, options = (
        schema.build(kind, values, locate=locate)
        for kind in (domain.config_class(), options_class(name, domain))
    )
    return config, options, values["trainer"]
