"""What commands that use a trained model share: parse options, check files, open the model.

`triptych sample` and `triptych attention` are no more than this and one method of the model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

import triptych
from triptych import pretrained
from triptych.cli.main import COMMANDS
from triptych.config.schema import build, parse_settings, parser_for
from triptych.domains import module_exists
from triptych.domains.base import Domain, TrainedModel
from triptych.domains.options import ModelOptions
from triptych.errors import UserError
from triptych.files.progress import ProgressLine
from triptych.files.results import OutputFolder, check_input_file
from triptych.tools import configs, recipes
from triptych.tools.download import catalogue


def parser_of(options: Any, prog: str) -> ArgumentParser:
    """Return the parser of a class of options, with --overwrite if the class has a text for it."""
    parser = parser_for(options, prog=prog, description=options.description, config=False)
    if options.overwrite_help is not None:
        parser.add_argument("--overwrite", action="store_true", help=options.overwrite_help)
    return parser


def options_parser(command: str, domain: Domain) -> ArgumentParser:
    """Return the parser of a command's options."""
    return parser_of(options_class(command, domain), f"triptych {command} {domain.name}")


def options_class(command: str, domain: Domain) -> Any:
    """Return the class of a command's options in a domain."""
    return getattr(domain, COMMANDS[command].options)


def read_options(command: str, domain: Domain, arguments: Sequence[str]) -> tuple[Any, bool]:
    """Parse a command line, import its plugin; return the options and whether to overwrite files.

    Raises UserError for an unknown option, an impossible value and a missing input file.
    """
    values, locate = parse_settings(options_parser(command, domain), arguments)
    options = build(options_class(command, domain), values, locate=locate)
    if isinstance(options, ModelOptions):
        check_checkpoint(options.checkpoint)
        import_plugin(options.plugin)
        for option, expected in options.input_files().items():
            if (value := getattr(options, option)) is not None:
                check_input_file(value, option, expected=expected)
    return options, values.get("overwrite", False)


def check_checkpoint(path: str, option: str = "checkpoint") -> Path:
    """Return the path of a checkpoint, also of `pretrained:NAME`; UserError where there is none.

    `./pretrained:NAME` is a file of that name. A folder is one of `triptych export`.
    """
    if path.startswith(pretrained.PREFIX):
        return pretrained.find(path)
    if path and Path(path).is_dir():
        pretrained.weights_in(Path(path))
        return Path(path)
    name = path if path in pretrained.names() else "NAME"
    # A run without validation has no best.ckpt, but last.ckpt.
    others = sorted(Path(path).parent.glob("*.ckpt"))
    example = others[-1] if others else "runs/NAME/checkpoints/best.ckpt"
    expected = f"a file such as {example}, or {pretrained.PREFIX}{name}"
    return check_input_file(path, option, expected=expected)


def import_plugin(module: str | None) -> None:
    """Import the module of --plugin, if any; UserError for one that Python cannot import."""
    if module is None:
        return
    if not module_exists(module):
        raise UserError(f"--plugin {module} is no module that Python can import")
    import_module(module)


def open_model(domain: Domain, options: Any) -> TrainedModel:
    """Return the model that the options name, on their device and in their number format.

    Raises UserError for a checkpoint of another domain and for a device or a number format that
    this machine does not have.
    """
    from triptych.training.engine.devices import device_named

    device_named(options.device)  # a wrong device is refused before the file is read
    model = triptych.load(options.checkpoint, device=options.device, domain=domain.name)
    dtype: Any = getattr(options, "dtype", "fp32")
    return model if dtype == "fp32" else model.with_dtype(dtype)


@contextmanager
def data_advice(data: Any, option: str, domain: str | None = None) -> Iterator[None]:
    """Say in the refusal of data whose folder is missing how to get them.

    data: settings of the data. option: names their folder. domain: whose configs without files are
    an alternative.
    """
    try:
        yield
    except UserError as error:
        recipes.advise(error)
        folder = getattr(getattr(data, "source", None), "directory", None)
        if folder is None or Path(folder).expanduser().exists() or option in str(error):
            raise
        known = catalogue.of_folder(folder)
        fetch = f" (`triptych data fetch {known.name}` downloads them)" if known else ""
        free = sorted(configs.without_files(domain), key=len)[:3] if domain else []
        listed = f"such as {', '.join(free)}; `triptych configs {domain}` marks them with *"
        others = f", or take a config that reads no files ({listed})" if free else ""
        raise UserError(
            f"{error}; set {option} to the folder of your data{fetch}{others}"
        ) from error


@dataclass(frozen=True)
class FolderCommand:
    """A command whose work is one method of a `TrainedModel`."""

    name: str
    method: str
    """Takes the options, the folder and a factory of progress displays; returns a sentence."""
    advice: str
    """What to do where memory runs out."""

    def parser(self, domain: Domain) -> ArgumentParser:
        """Return the parser of the options."""
        return options_parser(self.name, domain)

    def run(self, domain: Domain, arguments: Sequence[str]) -> int:
        """Write the files and print one sentence about them; raises UserError for bad input."""
        options, overwrite = read_options(self.name, domain, arguments)
        out = OutputFolder(options.out, overwrite=overwrite)
        out.check_free(options.output_names())
        write = getattr(open_model(domain, options), self.method)

        from triptych.training.engine.devices import out_of_memory_advice

        with out_of_memory_advice(self.advice):
            print(write(options, out, ProgressLine), file=sys.stderr)
        return 0


SAMPLE = FolderCommand("sample", "write_samples", "lower --count or use --device cpu")
ATTENTION = FolderCommand("attention", "write_attention", "use --device cpu")
