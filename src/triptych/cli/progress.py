"""Progress on one line of standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from triptych.domains.base import ProgressFactory


class ProgressLine:
    """Callback (done, total) that keeps a line on standard error up to date.

    On a terminal the line is rewritten; in a log a new line follows every 30 s at most.
    at_most: the work may end before its total; `end` then prints the number of units done.
    """

    def __init__(self, what: str, *, at_most: bool = False) -> None:
        self.what, self.at_most = what, at_most
        self.terminal = sys.stderr.isatty()
        self.interval = 0.5 if self.terminal else 30.0  # seconds
        self.started = time.monotonic()
        self.last = 0.0 if self.terminal else self.started
        self.done = 0
        self.finished = False

    def __call__(self, done: int, total: int, /) -> None:
        """Print the progress if the last print is long enough ago or the work is done."""
        now = time.monotonic()
        self.done, self.finished = done, 0 < total <= done
        if not self.finished and now - self.last < self.interval:
            return
        self.last = now
        seconds = now - self.started
        most = "at most " if self.at_most and not self.finished else ""
        of_total = f" of {most}{total}" if total else ""
        left = seconds / done * (total - done) if 0 < done < total else None
        took = f", {seconds:.1f} s" if self.finished else ""
        self._print(f"{done}{of_total}{took}" + (f", {most}{left:.0f} s left" if left else ""))

    def end(self) -> None:
        """Finish the line of work that ended before its total."""
        if self.done and not self.finished:
            self.finished = True
            self._print(f"{self.done}, {time.monotonic() - self.started:.1f} s")

    def _print(self, text: str) -> None:
        start = "\r\033[K" if self.terminal else ""
        end = "\n" if self.finished or not self.terminal else ""
        print(f"{start}{self.what}: {text}", end=end, file=sys.stderr, flush=True)


@contextmanager
def progress_line() -> Iterator[ProgressFactory]:
    """Give a factory of progress lines, which are finished at the end of the block."""
    lines: list[ProgressLine] = []

    def report(what: str, *, at_most: bool = False) -> ProgressLine:
        lines.append(ProgressLine(what, at_most=at_most))
        return lines[-1]

    yield report
    for line in lines:
        line.end()
