"""`triptych pretrained [NAME]`: the shipped models, or the model card of one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from triptych import pretrained
from triptych.cli.plain import PlainParser


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = PlainParser(
        prog="triptych pretrained",
        usage="triptych pretrained [NAME]",
        description="Without a name: one line for each model shipped with Triptych. With a name: "
        "its model card, with training data, scores, terms of use and limits. Every option that "
        "takes a checkpoint also takes pretrained:NAME.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="Name of a model.")
    return parser


def names() -> list[str]:
    """Return the names of the shipped models."""
    return pretrained.names()


def run(arguments: Sequence[str]) -> int:
    """Print the list or a model card; UserError for an unknown name. Imports nothing heavy."""
    name = parser().parse_args(arguments).name
    if name is not None:
        print(pretrained.read_card(name), end="")
        return 0
    rows = []
    for name in names():
        weights = pretrained.find(name)
        metadata = pretrained.read_metadata(weights)
        size, card = f"{weights.stat().st_size / 1e6:.1f} MB", metadata["card"]
        rows.append((name, metadata["triptych"]["domain"], size, card["figure"], card["what"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    if not rows:
        print("no pretrained model comes with this installation")
    return 0
