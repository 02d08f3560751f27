"""The line on standard error that says how far a command is."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triptych.files import progress
from triptych.files.progress import ProgressLine


class Clock:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_a_log_gets_a_line_each_half_minute_and_one_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    report = ProgressLine("drawn")
    for done, now in ((1, 110.0), (2, 131.0), (3, 140.0), (4, 150.5)):
        clock.now = now
        report(done, 4)
    assert (
        capsys.readouterr().err == "drawn: 2 of 4, 0.1/s, 31 s left\ndrawn: 4 of 4, 0.1/s, 50.5 s\n"
    )


def test_a_terminal_gets_one_line_that_is_written_again(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_terminal(monkeypatch)
    report = ProgressLine("drawn")
    for done, now in ((1, 110.0), (2, 110.1), (4, 112.0)):
        clock.now = now
        report(done, 4)
    first, last = "drawn: 1 of 4, 0.1/s, 30 s left", "drawn: 4 of 4, 0.3/s, 12.0 s"
    assert capsys.readouterr().err == f"\r{first}\r{last.ljust(len(first))}\n"


def test_work_that_ends_before_its_total_says_so(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is ended, so that the next word does not stand behind it."""
    on_terminal(monkeypatch)
    report = ProgressLine("drawn", at_most=True)
    clock.now = 110.0
    report(10, 400)
    clock.now = 120.0
    report(12, 12)
    first, last = (
        "drawn: 10 of at most 400, 1.0/s, at most 390 s left",
        "drawn: 12 of 12, 0.6/s, 20.0 s",
    )
    assert capsys.readouterr().err == f"\r{first}\r{last.ljust(len(first))}\n"


def test_translations_are_counted_within_a_part_too(
    cli: Any, translation_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are written 32 at a time here, and told as they are translated; the end once."""
    on_terminal(monkeypatch)
    clock = itertools.count(step=10.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    lines = b"eins\n" * 40
    named = ["--checkpoint", translation_checkpoint, "--beam", "1", "--batch_size", "2"]
    answer = cli("translate", *named, stdin=lines)
    assert answer.code == 0, answer.err
    # How many lines there are is known at the end of the input.
    told = [int(number) for number in re.findall(r"translated lines: (\d+),", answer.err)]
    assert told == sorted(set(told)), "each once, in order"
    assert answer.err.count("translated lines: 40 of 40") == 1
    assert {2, 30, 32, 34, 40} <= set(told)
