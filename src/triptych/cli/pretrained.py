"""`triptych pretrained [NAME]`: the shipped models, or the model card of one."""

from __future__ import annotations

from collections.abc import Sequence

from triptych import pretrained
from triptych.errors import UserError

_HELP = """\
usage: triptych pretrained [NAME]

Without a name: one line for each model shipped with Triptych. With a name: its model card, with
training data, scores, terms of use and limits.
Every option that takes a checkpoint also takes pretrained:NAME.
"""


def run(arguments: Sequence[str]) -> int:
    """Print the list or a model card; UserError for an unknown name. Imports nothing heavy."""
    if any(argument in ("-h", "--help") for argument in arguments):
        print(_HELP, end="")
        return 0
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        wrong = next((a for a in arguments if a.startswith("-")), arguments[-1])
        raise UserError(f"unexpected {wrong!r} after pretrained; expected one NAME, or nothing")
    if arguments:
        print(pretrained.read_card(arguments[0]), end="")
        return 0
    rows = []
    for name in pretrained.names():
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
