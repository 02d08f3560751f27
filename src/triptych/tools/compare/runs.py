"""Runs of a comparison: training in processes of their own, and what their folders say."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from triptych.errors import Interrupted, UserError
from triptych.files.progress import ProgressLine
from triptych.tools.report.metrics import Curve
from triptych.tools.report.run import VERSIONS, read_run

POLL_SECONDS = 0.2


class Cell(NamedTuple):
    """A variant with a seed."""

    variant: str
    seed: int

    def __str__(self) -> str:
        return f"{self.variant}/{self.seed}"

    def log(self, out: Path) -> Path:
        """Return the file of what the run prints."""
        return out / "logs" / f"{self.variant}-{self.seed}.txt"


class Outcome(NamedTuple):
    """What the folder of a run says."""

    metric: str
    mode: str
    """min or max: which value of the metric is the best."""
    curve: Curve
    """Of the validations; not empty."""
    planned: int
    """Updates of the whole run."""

    @property
    def finished(self) -> bool:
        """Whether the last planned update is validated."""
        return self.curve[-1][0] >= self.planned

    @property
    def best(self) -> tuple[int, float]:
        """Step and value of the best validation, that of best.ckpt."""
        pick = min if self.mode == "min" else max
        return pick(self.curve, key=lambda point: point[1])


def read_outcome(folder: Path) -> Outcome | None:
    """Return what a run's folder says; None where no validation has been logged."""
    with suppress(UserError):  # a run that was killed as it wrote its first row
        if (folder / VERSIONS).is_file() and (run := read_run(folder, most=1)).starts:
            metric, mode = run.starts[-1]["monitor"]
            if curve := run.curves.get(metric):
                return Outcome(metric, mode, curve, int(run.settings["trainer.max_steps"]))
    return None


def train_cells(
    cells: Sequence[Cell], words: Mapping[str, Sequence[str]], out: Path, processes: int
) -> dict[Cell, str]:
    """Train runs, some at a time; return those that failed with the last line of their output.

    words: command of each variant, without seed and name. A signal stops the runs, which keep a
    checkpoint, and raises Interrupted.
    """
    failed: dict[Cell, str] = {}
    running: dict[Cell, subprocess.Popen[bytes]] = {}
    waiting, progress = list(cells), ProgressLine("trained runs")
    former = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                cell = waiting.pop(0)
                running[cell] = _start(cell, words[cell.variant], out, processes)
            time.sleep(POLL_SECONDS)
            for cell in [cell for cell, process in running.items() if process.poll() is not None]:
                if code := running.pop(cell).returncode:
                    printed = cell.log(out).read_text(encoding="utf-8", errors="replace")
                    failed[cell] = f"exit code {code}: {printed.strip().rpartition(chr(10))[2]}"
            progress(len(cells) - len(waiting) - len(running), len(cells))
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
        for number, handler in former.items():
            signal.signal(number, handler)
    return failed


def _start(cell: Cell, words: Sequence[str], out: Path, processes: int) -> subprocess.Popen[bytes]:
    own = [f"--run.directory={out}", f"--run.name={cell}", f"--run.seed={cell.seed}"]
    command = [*words, *own, "--trainer.enable_progress_bar=false", "--resume", "auto"]
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    cell.log(out).parent.mkdir(parents=True, exist_ok=True)
    with cell.log(out).open("ab") as file:
        # In a session of its own, or Ctrl-C would reach the run twice and stop it at once.
        return subprocess.Popen(
            [sys.executable, "-m", "triptych", "train", *command],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env={"OMP_NUM_THREADS": threads, **os.environ},
        )  # fmt: skip


def _stop(signum: int, frame: Any) -> None:
    raise Interrupted(signum, "stopped the comparison; the same command goes on with it")
