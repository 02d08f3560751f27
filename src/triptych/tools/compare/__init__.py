"""Variants of one config trained with several seeds at equal cost: runs, table and curves."""

from dataclasses import dataclass

from triptych.domains.options import CommandOptions, argument
from triptych.types import PositiveInt


@dataclass(frozen=True, kw_only=True)
class CompareOptions(CommandOptions):
    """Train variants of a config with several seeds and one budget, and compare their scores.

    The same command trains what is missing or unfinished, and writes the table and the curves anew.
    """

    name: str
    out: str | None = None
    """Folder for runs, table and curves; null for runs/compare/NAME."""
    processes: PositiveInt = 1
    """Runs that are trained at the same time."""
    dry_run: bool = False
    """List the variants with their parameters, steps and operations, and train nothing."""

    parser_arguments = argument(
        "name",
        "YAML file with a config, variants, seeds and a budget, or the NAME of a shipped one.",
        metavar="FILE",
    )
