"""One self-contained HTML page about runs: settings, curves, samples, statistics, versions.

The readers of a run's folder (`run`, `metrics`, `samples`) know no HTML, `curves` draws, and `page`
fills the templates. No module imports torch.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from triptych.domains.options import OVERWRITE, CommandOptions, argument
from triptych.files.results import check_result_file, write_atomically
from triptych.types import PositiveInt

MOST_NAMED = 4
"""Runs whose names are the title of a report; the title of more runs is their number."""


@dataclass(frozen=True, kw_only=True)
class Report(CommandOptions):
    """Write one HTML file about a run, or about several side by side.

    It has settings, curves, samples, attention, statistics and versions, and needs no network. Runs
    may be unfinished.
    """

    runs: list[str]
    out: str
    """HTML file to write."""
    title: str | None = None
    """Title of the page; null for the names of the runs, or the number of many."""
    steps: PositiveInt = 12
    """Largest number of validations of a run whose samples are shown, evenly spaced with the first
    and the last."""
    overwrite: bool = False
    wandb: bool = False
    """Add the page to the run of Weights & Biases of each run."""

    parser_arguments = OVERWRITE | argument("runs", "Folder of a run.", nargs="+", metavar="RUN")

    def run(self) -> None:
        out = check_result_file(self.out, "out", replaces=self.overwrite)

        from triptych.tools.report.page import report
        from triptych.tools.report.run import read_runs

        runs = read_runs([Path(folder) for folder in self.runs], most=self.steps)
        named = ", ".join(run.name for run in runs)
        title = self.title or (named if len(runs) <= MOST_NAMED else f"{len(runs)} runs")
        content = report(runs, title=title)
        write_atomically(out, content)
        for shown in runs:
            for notice in shown.notices:
                print(f"{shown.name}: {notice}", file=sys.stderr)
        print(f"{out} ({len(content) / 1e6:.1f} MB)", file=sys.stderr)
        if self.wandb:
            from triptych.training.wandb_logger import add_to_run

            for folder in self.runs:
                add_to_run(Path(folder).expanduser(), {}, content)
