"""`triptych complexity DOMAIN`: what the model of a settings file and kinds of layers cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jsonargparse import ArgumentParser

from triptych.cli import train
from triptych.config.schema import build
from triptych.domains.base import Domain
from triptych.files.progress import ProgressLine
from triptych.files.results import OutputFolder, json_bytes

FILES = ("complexity.json", "complexity.png")


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Print the costs; raises UserError."""
    config, values, locate = train.read_run("complexity", domain, arguments, parser)
    from triptych.tools.complexity.table import CostOptions, costs, plot

    options = build(CostOptions, values, locate=locate)
    out = None
    if options.out is not None:
        out = OutputFolder(options.out, overwrite=False)
        out.check_free(FILES)
    task, train_loader, _ = train.prepare_data(domain, config)
    rows, text = costs(task, next(iter(train_loader)), options, ProgressLine("measured layers"))
    print(text)
    if out is not None:
        out.write(FILES[0], json_bytes([row._asdict() for row in rows]))
        print(out.write(FILES[1], plot(rows)), file=sys.stderr)
    return 0


def parser(domain: Domain) -> ArgumentParser:
    """Return the parser of `triptych train` with the options of this command."""
    from triptych.tools.complexity.table import CostOptions

    settings = train.parser(domain)
    settings.prog = f"triptych complexity {domain.name}"
    settings.usage = "%(prog)s --config FILE [--length N] [--measure true] [--out FOLDER]"
    settings.description = (
        f"Print what a model of the domain {domain.name} costs: parameters, operations and memory; "
        "and, to compare its attention with, what the kinds of layers of Vaswani et al. (2017), "
        "table 1, cost at the same width. The other settings are those of `triptych train`."
    )
    settings.add_class_arguments(CostOptions, None, as_group=True)
    return settings
