"""Commands that use a trained model: parse options, check files, open the model, write results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from triptych import pretrained
from triptych.cli.progress import progress_line
from triptych.config.parser import SettingsParser, parser_for
from triptych.config.schema import build
from triptych.domains import domain_of, module_exists
from triptych.domains.base import Domain, TrainedModel
from triptych.domains.files import OutputFolder, check_input_file
from triptych.domains.options import ModelOptions, SampleOptions
from triptych.errors import UserError

OVERWRITE = "overwrite"


def options_parser(command: str, domain: Domain) -> SettingsParser:
    """Return the parser of a command's options."""
    options: type[ModelOptions] = getattr(domain, f"{command}_options")
    parser = parser_for(
        options,
        prog=f"triptych {command} {domain.name}",
        description=options.description,
        config=False,
    )
    if options.overwrite_help is not None:
        parser.add_argument(f"--{OVERWRITE}", action="store_true", help=options.overwrite_help)
    return parser


def read_options(command: str, domain: Domain, arguments: Sequence[str]) -> tuple[Any, bool]:
    """Parse a command line; return the options dataclass and whether --overwrite was given.

    Raises UserError for an unknown option, a wrong type or an impossible value.
    """
    values, locate = options_parser(command, domain).parse_settings(arguments)
    options = build(getattr(domain, f"{command}_options"), values, locate=locate)
    return options, bool(values.get(OVERWRITE))


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
    from triptych.training.checkpoint import read_checkpoint
    from triptych.training.devices import device_named

    if options.plugin is not None:
        import_module(options.plugin)
    device_named(options.device)  # a wrong device is refused before the file is read
    content = read_checkpoint(path)
    domain_of(content["triptych"], named=domain.name, file=f"--checkpoint {path}")
    return domain.restore(content, options.device), content["triptych"]


def write_to_folder(command: str, domain: Domain, arguments: Sequence[str]) -> int:
    """Run `sample` or `attention`, which write result files into a folder.

    Raises UserError for bad input.
    """
    options, overwrite = read_options(command, domain, arguments)
    path = check_inputs(options)
    out = OutputFolder(options.out, overwrite=overwrite)
    out.check_free(options.output_names())
    model, _ = open_model(path, domain, options)
    with progress_line() as report:
        if isinstance(options, SampleOptions):
            summary = model.with_dtype(options.dtype).write_samples(options, out, report)
        else:
            summary = model.write_attention(options, out, report)
    print(summary, file=sys.stderr)
    return 0
