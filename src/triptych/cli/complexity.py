"""`triptych complexity DOMAIN`: what the model of a settings file and kinds of layers cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from triptych.errors import UserError
from triptych.types import Checked, IntAboveOne, PositiveInt

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from triptych.domains.base import Domain

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
"""Lengths that are measured, in positions."""
FILES = ("complexity.json", "complexity.png")
MAX_LENGTH = 32_768
"""Longest sequence; the kept tensors of full attention take many gigabytes beyond it."""


@dataclass(frozen=True)
class Options(Checked):
    """Options besides the settings of the run."""

    length: PositiveInt | None = None
    """Length of the sequence of the table; null for the longest one of a batch of the data."""
    window: IntAboveOne = 128
    """Largest number of positions that a query of local attention reads (r)."""
    kernel: IntAboveOne = 3
    """Width of the convolution (k)."""
    measure: bool = False
    """Time all layers over lengths from 128 to 4,096 on this machine."""
    out: str | None = None
    """New folder for the table as JSON and the plot over the lengths."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is not None and self.length > MAX_LENGTH:
            raise ValueError(f"length must be at most {MAX_LENGTH}, got {self.length}")


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Print the costs; raises UserError."""
    from triptych.cli.train import read_run
    from triptych.config.schema import build
    from triptych.files.results import OutputFolder, json_bytes

    config, values, locate = read_run("complexity", domain, arguments, parser)
    options = build(Options, values, locate=locate)
    out = None
    if options.out is not None:
        out = OutputFolder(options.out, overwrite=False)
        out.check_free(FILES)
    rows, text = costs(domain, config, options)
    print(text)
    if out is not None:
        from triptych.tools.complexity.table import plot

        out.write(FILES[0], json_bytes([row._asdict() for row in rows]))
        print(out.write(FILES[1], plot(rows)), file=sys.stderr)
    return 0


def costs(domain: Domain, config: Any, options: Options) -> tuple[list[Any], str]:
    """Return the rows of the table and the text to print."""
    from triptych.cli.train import prepare_data
    from triptych.files.progress import ProgressLine
    from triptych.tools.complexity import measure
    from triptych.tools.complexity.layers import layer_kinds
    from triptych.tools.complexity.table import as_text, model_text, table

    task, train_loader, _ = prepare_data(domain, config)
    cost = measure.model_cost(task, next(iter(train_loader)))
    try:
        width, n_heads = measure.width_and_heads(task)
    except ValueError as error:
        raise UserError(f"{error}, whose costs could be compared") from None
    length = options.length or cost.length
    lengths = LENGTHS if options.measure or options.out else (length,)
    kinds = layer_kinds(
        width, n_heads, window=options.window, kernel=options.kernel, length=max(lengths)
    )
    progress = ProgressLine("measured layers")
    rows = table(kinds, lengths, timed=options.measure, progress=progress)
    own = table(measure.own_layers(task), (cost.length,), timed=options.measure)
    parts = [
        model_text(cost),
        f"one layer of width {width}, {n_heads} heads, one sequence:",
        as_text(rows),
    ]
    if own:
        parts += ["one layer of each attention of the model:", as_text(own)]
    return rows, "\n\n".join(parts)


def parser(domain: Domain) -> ArgumentParser:
    """Return the parser of `triptych train` with the options of this command."""
    from triptych.cli.train import parser as train_parser

    settings = train_parser(domain)
    settings.prog = f"triptych complexity {domain.name}"
    settings.usage = "%(prog)s --config FILE [--length N] [--measure true] [--out FOLDER]"
    settings.description = (
        f"Print what a model of the domain {domain.name} costs: parameters, operations and memory; "
        "and, to compare its attention with, what the kinds of layers of Vaswani et al. (2017), "
        "table 1, cost at the same width. The other settings are those of `triptych train`."
    )
    settings.add_class_arguments(Options, None, as_group=True)
    return settings
