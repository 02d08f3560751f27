"""`triptych pack DOMAIN`: write the data of a run into files that training maps into memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from jsonargparse import ArgumentParser

from triptych.cli.train import parser as train_parser
from triptych.config.parser import parse_settings
from triptych.config.schema import build
from triptych.domains.base import Domain
from triptych.errors import UserError


def run(domain: Domain, arguments: Sequence[str]) -> int:
    """Write the packed data; raises UserError."""
    values, locate = parse_settings(parser(domain), arguments)
    if "out" not in values:
        raise UserError(f"pack {domain.name} needs --out FOLDER, a new folder")
    config = build(domain.config_class(), values, locate=locate)
    print(domain.pack(config, values["out"]), file=sys.stderr)
    return 0


def parser(domain: Domain) -> ArgumentParser:
    """Return the parser of `triptych train` with the folder to write."""
    settings = train_parser(domain)
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
