"""`triptych compare`: variants of a config trained with several seeds at equal cost."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

from triptych.cli.options import read_run
from triptych.cli.train import prepare_data
from triptych.domains import find_domain
from triptych.domains.options import CommandOptions, argument
from triptych.errors import TrainingStopped, UserError
from triptych.files.progress import aligned
from triptych.files.results import write_atomically
from triptych.tools.compare import plan
from triptych.types import PositiveInt

COUNTED = 4
"""Batches whose operations are counted; the mean stands for all."""


@dataclass(frozen=True, kw_only=True)
class Compare(CommandOptions):
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

    @staticmethod
    def names() -> list[str]:
        """Return the names of the shipped comparisons."""
        return list(plan.shipped())

    def run(self) -> None:
        file = plan.find(self.name)
        comparison = plan.read_comparison(file)
        out = Path(self.out or f"runs/compare/{file.stem}").expanduser()
        known = plan.read_record(out, comparison)
        costs: dict[str, plan.Cost] = {}
        words = {}
        for variant in comparison.variants:
            try:
                with _said_once(again=bool(costs)):
                    costs[variant] = known.get(variant) or measure(comparison, variant)
                length = comparison.length(costs[variant])
            except UserError as error:
                raise UserError(f"{file}, variant {variant}: {error}") from error
            words[variant] = [comparison.domain, *comparison.words(variant), *length]

        from triptych.tools.compare import table
        from triptych.tools.compare.runs import Cell, read_outcome, train_cells

        # Seed by seed, so that a comparison that is cut off has pairs.
        cells = [Cell(variant, seed) for seed in comparison.seeds for variant in costs]
        found = {cell: read_outcome(out / str(cell)) for cell in cells}
        missing = [cell for cell, outcome in found.items() if not (outcome and outcome.finished)]
        failed = {}
        if not self.dry_run:
            plan.write_record(out, comparison, costs)
            failed = train_cells(missing, words, out, self.processes)
            found |= {cell: read_outcome(out / str(cell)) for cell in missing}
        outcomes = {cell: o for cell, o in found.items() if o and o.finished}
        planned = {variant: comparison.steps(cost) for variant, cost in costs.items()}
        rows = table.summarise(outcomes, costs, planned)
        lines = table.lines_of(rows, outcomes)
        print(*aligned(lines, right_from=1), sep="\n")
        if self.dry_run:
            print(f"{len(missing)} of {len(cells)} runs are to be trained", file=sys.stderr)
            return
        files = {
            "table.md": table.as_markdown(lines).encode(),
            "table.tex": table.as_latex(lines).encode(),
            "table.csv": table.as_csv([table.Row._fields, *rows]).encode(),
            "runs.csv": table.as_csv(table.run_lines(outcomes)).encode(),
        }
        if outcomes:
            files["curves.png"] = table.draw(outcomes, comparison.budget)
        for name, content in files.items():
            write_atomically(out / name, content)
        for cell, why in failed.items():
            print(f"{cell} failed, {why}")
        print(f"{out} has {', '.join(files)} and the runs", file=sys.stderr)
        if lacking := [cell for cell in cells if cell in failed or cell not in outcomes]:
            raise TrainingStopped(
                f"{len(lacking)} of {len(cells)} runs failed; {out}/logs has all that they print"
            )


@contextmanager
def _said_once(*, again: bool) -> Iterator[None]:
    """Hide what is said of the data, which the second variant and all others share."""
    logging.disable(logging.WARNING if again else logging.NOTSET)
    try:
        with redirect_stderr(io.StringIO() if again else sys.stderr):
            yield
    finally:
        logging.disable(logging.NOTSET)


def measure(comparison: plan.Comparison, variant: str) -> plan.Cost:
    """Return what a variant costs; UserError for settings with which no run could begin."""
    from triptych.tools.complexity import model_cost
    from triptych.training.run.checks import check_settings, trainer_settings

    domain = find_domain(comparison.domain)
    some_length = comparison.length(plan.Cost(0, 1.0))
    config, _, options = read_run("train", [*comparison.words(variant), *some_length], domain)
    trainer = trainer_settings(options)
    check_settings(config, trainer)
    task, loader, _ = prepare_data(domain, config)
    costs = [model_cost(task, batch) for batch in islice(loader, COUNTED)]
    batches = int(trainer.get("accumulate_grad_batches") or 1)
    return plan.Cost(costs[0].parameters, 3 * batches * fmean(c.flops for c in costs), batches)
