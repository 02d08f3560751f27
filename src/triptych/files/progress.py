"""What a terminal shows: progress on one line of standard error, or none; tables."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from triptych.types import Progress

_OPEN: list[tuple[TextIO, int]] = []
"""Terminal and width of the line that has no end yet; empty for none."""


class ProgressLine:
    """Callback (done, total) for a line on standard error: units done, rate and time left.

    On a terminal the line is rewritten; in a log a new line follows every 30 s at most.
    at_most: the work may end before its total; its last call then gives the units done as total.
    """

    def __init__(self, what: str, *, at_most: bool = False) -> None:
        self.what, self.at_most = what, at_most
        self.terminal = sys.stderr.isatty()
        self.interval = 0.5 if self.terminal else 30.0  # seconds
        self.started = time.monotonic()
        self.last = 0.0 if self.terminal else self.started
        self.finished = False

    def __call__(self, done: int, total: int, /) -> None:
        """Print the progress if the last print is long enough ago or the work is done."""
        now = time.monotonic()
        self.finished = 0 < total <= done
        if not self.finished and now - self.last < self.interval:
            return
        self.last = now
        seconds = now - self.started
        most = "at most " if self.at_most and not self.finished else ""
        of_total = f" of {most}{total}" if total else ""
        left = seconds / done * (total - done) if 0 < done < total else None
        took = f", {seconds:.1f} s" if self.finished else ""
        rate = done / seconds if done and seconds > 0 else None
        per_second = f", {rate:.{0 if rate >= 10 else 1}f}/s" if rate else ""
        rest = f", {most}{left:.0f} s left" if left else ""
        text = f"{done}{of_total}{per_second}{took}{rest}"
        ended = self.finished or not self.terminal
        write_line(f"{self.what}: {text}", sys.stderr, ended=ended)


def write_line(text: str, stream: TextIO, *, ended: bool = True) -> None:
    """Write a line; on a terminal over the one that has no end yet, with spaces as tqdm does.

    A control sequence that deletes the line means nothing to Weights & Biases, which records it.
    """
    if stream.isatty():
        width = _OPEN.pop()[1] if _OPEN else 0
        _OPEN.extend([] if ended else [(stream, len(text))])
        text = f"\r{text.ljust(width)}"
    print(text, end="\n" if ended else "", file=stream, flush=True)


def end_line() -> None:
    """End the line of work that was given up, so that a message begins a new one."""
    if _OPEN:
        print(file=_OPEN.pop()[0], flush=True)


_DISPLAY: ContextVar[Callable[..., Progress] | None] = ContextVar("display", default=None)


def display(what: str, *, at_most: bool = False) -> Progress:
    """Return a display of the units `what`; it shows nothing outside of `displayed_by`.

    at_most: the work may end before its total.
    """
    factory = _DISPLAY.get()
    return factory(what, at_most=at_most) if factory else lambda done, total: None


@contextmanager
def displayed_by(factory: Callable[..., Progress]) -> Iterator[None]:
    """Show progress by what a factory with the arguments of `display` makes.

    The command line does so with `ProgressLine`.
    """
    token = _DISPLAY.set(factory)
    try:
        yield
    finally:
        _DISPLAY.reset(token)


def aligned(
    rows: Sequence[Sequence[str]], *, right_from: int | None = None, indent: str = ""
) -> list[str]:
    """Return the rows of a table as lines, with columns from `right_from` on aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = len(widths) if right_from is None else right_from
    lines = []
    for row in rows:
        cells = [*map(str.ljust, row[:left], widths), *map(str.rjust, row[left:], widths[left:])]
        lines.append(indent + "  ".join(cells).rstrip())
    return lines
