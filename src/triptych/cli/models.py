"""What commands of a trained model share; `triptych sample` and `attention` are no more."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triptych
from triptych.cli.options import read_options
from triptych.domains.base import Domain, TrainedModel
from triptych.domains.options import AverageOptions
from triptych.errors import UserError
from triptych.files.progress import ProgressLine
from triptych.files.results import OutputFolder
from triptych.tools import configs, recipes
from triptych.tools.download import catalogue


def open_model(domain: Domain, options: Any) -> TrainedModel:
    """Return the model that the options name, on their device and in their number format.

    Raises UserError for a checkpoint of another domain, and what this machine does not have.
    """
    from triptych.training.engine.devices import device_named

    device_named(options.device)  # a wrong device is refused before the file is read
    model, *others = (
        triptych.load(path, device=options.device, domain=domain.name)
        for path in options.checkpoints()
    )
    symmetries = options.symmetries() if isinstance(options, AverageOptions) else {}
    if others or symmetries:
        model = model.averaged(*others, **symmetries)
    dtype: Any = getattr(options, "dtype", "fp32")
    return model if dtype == "fp32" else model.with_dtype(dtype)


@contextmanager
def data_advice(data: Any, option: str, domain: str | None = None) -> Iterator[None]:
    """Say in the refusal of data whose folder is missing how to get them.

    option: names their folder. domain: whose configs without files are an alternative.
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

    def run(self, domain: Domain, arguments: Sequence[str]) -> None:
        """Write the files and print one sentence about them; raises UserError for bad input."""
        options = read_options(self.name, arguments, domain)
        out = OutputFolder(options.out, overwrite=options.overwrite)
        out.check_free(options.output_names())
        write = getattr(open_model(domain, options), self.method)

        from triptych.training.engine.devices import out_of_memory_advice

        with out_of_memory_advice(self.advice):
            print(write(options, out, ProgressLine), file=sys.stderr)


SAMPLE = FolderCommand("sample", "write_samples", "lower --count or use --device cpu")
ATTENTION = FolderCommand("attention", "write_attention", "use --device cpu")
