"""`triptych sample DOMAIN`: samples of a trained model, as files in a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jsonargparse import ArgumentParser

from triptych.cli.options import open_model, options_parser, read_folder_options
from triptych.cli.progress import ProgressLine
from triptych.domains.base import Domain


def parser(domain: Domain) -> ArgumentParser:
    """Return the parser of the options."""
    return options_parser("sample", domain)


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Sample into the folder and print one sentence about it; raises UserError for bad input."""
    options, out = read_folder_options("sample", domain, arguments)
    model = open_model(domain, options)

    from triptych.training.engine.devices import out_of_memory_advice

    with out_of_memory_advice("lower --count or use --device cpu"):
        print(model.write_samples(options, out, ProgressLine), file=sys.stderr)
    return 0
