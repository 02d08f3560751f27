"""Steps that the commands share: parse options, check files, open the model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from triptych import pretrained
from triptych.cli.progress import progress_line
from triptych.config.parser import SettingsParser, parser_for
from triptych.config.schema import build
from triptych.domains import module_exists
from triptych.domains.base import Domain, FolderCommand, TrainedModel
from triptych.domains.files import OutputFolder, check_input_file
from triptych.domains.options import ModelOptions, SampleOptions
from triptych.errors import UserError

Options = TypeVar("Options")
OVERWRITE = "overwrite"


def options_parser(
    cls: type, *, prog: str, description: str, flags: Mapping[str, str] | None = None
) -> SettingsParser:
    """Return the parser of a command's option class; flags: name -> help of options without value.

    Raises UserError, as it parses, for an unknown option, a wrong type or a missing value.
    """
    parser = parser_for(cls, prog=prog, description=description, config=False)
    for name, help_text in (flags or {}).items():
        parser.add_argument(f"--{name}", action="store_true", help=help_text)
    return parser


def read_options(
    cls: type[Options], parser: SettingsParser, arguments: Sequence[str]
) -> tuple[Options, bool]:
    """Parse a command line; return the options dataclass and whether --overwrite was given."""
    values, locate = parser.parse_settings(arguments)
    return build(cls, values, locate=locate), bool(values.get(OVERWRITE))


def check_checkpoint(path: str, option: str = "checkpoint") -> Path:
    """Return the path of a checkpoint, also of `pretrained:NAME`; UserError where there is none.

    `./pretrained:NAME` is a file of that name.
    """
    if path.startswith(pretrained.PREFIX):
        return pretrained.find(path)
    name = path if path in pretrained.names() else "NAME"
    expected = f"a file such as runs/NAME/checkpoints/best.ckpt, or {pretrained.PREFIX}{name}"
    return check_input_file(path, option, expected=expected)


def check_inputs(options: ModelOptions) -> Path:
    """Return the path of the checkpoint; UserError where it or another input file is missing."""
    path = check_checkpoint(options.checkpoint)
    if options.plugin is not None and not module_exists(options.plugin):
        raise UserError(f"--plugin {options.plugin} is no module that Python can import")
    for option, expected in options.input_files().items():
        if (value := getattr(options, option)) is not None:
            check_input_file(value, option, expected=expected)
    return path


def open_model(
    path: Path, domain: Domain, options: ModelOptions
) -> tuple[TrainedModel, dict[str, Any]]:
    """Return the model of a checkpoint of this domain and the checkpoint's header.

    Raises UserError for another file, and for a device that this machine does not have.
    """
    from triptych.domains import domain_of
    from triptych.training.checkpoint import read_checkpoint
    from triptych.training.devices import device_named

    if options.plugin is not None:
        import_module(options.plugin)
    device_named(options.device)  # a wrong device is refused before the file is read
    content = read_checkpoint(path)
    domain_of(content["triptych"], named=domain.name, file=f"--checkpoint {path}")
    return domain.restore(content, options.device), content["triptych"]


def folder_command_parser(
    verb: FolderCommand[Any, Any], name: str, domain: Domain
) -> SettingsParser:
    """Return the parser of a command that writes result files into a folder."""
    return options_parser(
        verb.options,
        prog=f"triptych {name} {domain.name}",
        description=f"{verb.description} Existing files are kept unless --overwrite is given.",
        flags={OVERWRITE: "Replace files of the same names in the output folder."},
    )


def run_folder_command(
    verb: FolderCommand[Any, Any], name: str, domain: Domain, arguments: Sequence[str]
) -> int:
    """Run a command that writes result files into a folder; raises UserError for bad input."""
    parser = folder_command_parser(verb, name, domain)
    options, overwrite = read_options(verb.options, parser, arguments)
    path = check_inputs(options)
    out = OutputFolder(options.out, overwrite=overwrite)
    out.check_free(options.output_names())
    model, _ = open_model(path, domain, options)
    if isinstance(options, SampleOptions):
        model = model.with_dtype(options.dtype)
    with progress_line() as report:
        summary = verb.run(model, options, out, report)
    print(summary, file=sys.stderr)
    return 0
