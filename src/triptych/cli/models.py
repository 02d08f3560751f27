"""What commands of a trained model share; `triptych sample`, `attention` and `average`."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triptych
from triptych.domains.base import Domain, TrainedModel
from triptych.domains.options import (
    OVERWRITE,
    AverageOptions,
    FolderOptions,
    PluginOptions,
    argument,
    check_checkpoint,
)
from triptych.errors import UserError
from triptych.files.results import OutputFolder, atomic_file, check_result_file
from triptych.tools import configs, recipes
from triptych.tools.download import catalogue

LAUNCHER = "TORCHELASTIC_RUN_ID"
"""Variable that torchrun gives the processes which it starts."""


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
def shared_work(options: Any) -> Iterator[Any]:
    """Yield the options, for each of `devices` processes with a device of its own.

    Such processes share the work of `decoding.ranks`; results are written by process 0.
    """
    devices = getattr(options, "devices", 1)
    if devices == 1 and int(os.environ.get("WORLD_SIZE", 1)) > 1 and LAUNCHER in os.environ:
        world = os.environ["WORLD_SIZE"]
        raise UserError(f"torchrun has started {world} processes; expected --devices {world}")
    if devices == 1:
        yield options
        return
    from triptych.training.run.processes import launched

    with launched(devices, options.device) as device:
        yield replace(options, device=device)


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

    method: str
    """Takes the options, the folder and a factory of progress displays; returns a sentence."""
    advice: str
    """What to do where memory runs out."""

    def run(self, domain: Domain, options: FolderOptions) -> None:
        """Write the files and print one sentence about them; raises UserError for bad input."""
        out = OutputFolder(options.out, overwrite=options.overwrite)
        out.check_free(options.output_names())
        with shared_work(options) as options, tempfile.TemporaryDirectory() as nowhere:
            from triptych.decoding.ranks import share
            from triptych.training.engine.devices import out_of_memory_advice

            if share()[0]:
                out = OutputFolder(nowhere, overwrite=True)
            write = getattr(open_model(domain, options), self.method)
            with out_of_memory_advice(self.advice):
                print(write(options, out), file=sys.stderr)


SAMPLE = FolderCommand("write_samples", "lower --count or use --device cpu")
ATTENTION = FolderCommand("write_attention", "use --device cpu")


@dataclass(frozen=True, kw_only=True)
class Average(PluginOptions):
    """Write a checkpoint whose weights are the mean of those of checkpoints of one model.

    Such as the last ones of a run, which `run.keep_late` keeps. A run with a moving average of the
    weights has it in its checkpoints, so the mean is of the averages. The probabilities of several
    models are averaged by --average of evaluate, sample and translate.
    """

    models: list[str]
    out: str
    """Checkpoint file (.ckpt) to write."""
    overwrite: bool = False

    parser_arguments = OVERWRITE | argument(
        "models",
        "Checkpoint file (.ckpt), folder of an export, or pretrained:NAME.",
        nargs="+",
        metavar="CHECKPOINT",
    )

    def checkpoints(self) -> list[str]:
        return self.models

    def run(self) -> None:
        out = check_result_file(self.out, "out", replaces=self.overwrite)
        paths = [check_checkpoint(name) for name in self.models]

        import torch

        from triptych.training.run.checkpoint import average_weights

        content = average_weights(paths)
        try:
            with atomic_file(out) as file:
                torch.save(content, file)
        except OSError as error:
            raise UserError(f"{out} cannot be written: {error.strerror or error}") from error
        steps = ", ".join(str(part["step"]) for part in content["triptych"]["averaged"])
        print(f"{out}: the mean of {len(paths)} checkpoints, of steps {steps}", file=sys.stderr)
