"""Timings that can be trusted: in turn, never a first call, and how busy others were meanwhile."""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks import machine
from benchmarks.rows import Row, Table

Run = Callable[[], object]
QUIET = 0.05
"""A timing is quiet where other processes used less than this share of the machine."""
ENOUGH_QUIET = 5
"""Rounds go on until every case has so many quiet timings, or the time is up."""


class CannotRunError(Exception):
    """Raised while a case is built: it cannot run here, and that is no fault."""


@dataclass(frozen=True)
class Case:
    """One competitor: `build` makes all it needs and returns the call that is timed."""

    name: str
    build: Callable[[], Run]
    work: float
    """What one call does, in the table's unit."""
    dtype: str = ""
    missing: str | None = None
    """Why it cannot run here."""


@dataclass
class Budget:
    """The time that a section may take, in seconds; shared out among the tables to come."""

    seconds: float
    min_rounds: int = 3
    max_rounds: int = 15
    call_s: float = 0.1
    """Short calls are repeated until one timing lasts so long."""
    wait_s: float = 0.2
    """How long a timing waits for others to be quiet."""
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.start)

    def share(self, tables: int) -> float:
        """Seconds for the next of so many tables."""
        return max(0.0, self.left) / max(1, tables)


@dataclass(frozen=True)
class Timing:
    seconds: float
    others: float | None
    """Share of the machine that other processes used, 0 to 1; None where it is unknown."""


def timed(run: Run, times: int, device: torch.device, wait_s: float = 0.0) -> Timing:
    """Seconds of one call, averaged over `times` of them in a row."""
    settle(wait_s)
    before = machine.cpu_seconds()
    start = time.perf_counter()
    if device.type == "cuda":
        # Events stand in the GPU's own queue: they time its work, idle gaps included.
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        first.record()
        for _ in range(times):
            run()
        last.record()
        last.synchronize()
        seconds = first.elapsed_time(last) / 1000
    else:
        for _ in range(times):
            run()
        seconds = time.perf_counter() - start
    wall = time.perf_counter() - start
    return Timing(seconds / times, others_share(before, machine.cpu_seconds(), wall))


def others_share(
    before: tuple[float, float] | None, after: tuple[float, float] | None, wall: float
) -> float | None:
    """Share of all cores that went to others between two readings of `cpu_seconds`."""
    if before is None or after is None:
        return None
    used = (after[0] - before[0]) - (after[1] - before[1])
    return max(0.0, used) / (wall * (os.cpu_count() or 1))


def settle(wait_s: float, look_s: float = 0.05) -> None:
    """Wait until others leave the machine alone for a moment, at most so long."""
    end = time.perf_counter() + wait_s
    while time.perf_counter() < end:
        before, start = machine.cpu_seconds(), time.perf_counter()
        time.sleep(look_s)
        others = others_share(before, machine.cpu_seconds(), time.perf_counter() - start)
        if others is None or others < QUIET:
            return


def in_turn(
    runs: dict[str, tuple[Run, int]], budget: Budget, seconds: float, device: torch.device
) -> dict[str, list[Timing]]:
    """Time each run once a round, every other round backwards; name -> timings.

    runs: name -> (call, calls a timing). All must have been called before. Ends after max_rounds,
    or from min_rounds on once `seconds` are up or every run has enough quiet timings.
    """
    found: dict[str, list[Timing]] = {name: [] for name in runs}
    start = time.monotonic()
    for number in range(1, budget.max_rounds + 1):
        for name in list(runs)[:: 1 if number % 2 else -1]:
            run, times = runs[name]
            found[name].append(timed(run, times, device, budget.wait_s))
        spent = time.monotonic() - start
        if number >= budget.min_rounds and spent > seconds:
            break
        if number >= max(budget.min_rounds, ENOUGH_QUIET) and all(
            sum(is_quiet(timing) for timing in timings) >= ENOUGH_QUIET
            for timings in found.values()
        ):
            break
    return found


def is_quiet(timing: Timing) -> bool:
    return timing.others is not None and timing.others < QUIET


def enough_quiet(found: Collection[Sequence[Timing]]) -> bool:
    """Whether every row has 3 quiet rounds: both sides of a ratio are one kind of median."""
    return all(sum(map(is_quiet, timings)) >= 3 for timings in found)


def summarise(row: Row, timings: Sequence[Timing], work: float, *, quiet_alone: bool) -> None:
    """Put median, minimum, rounds and rate into the row; the median of the quiet rounds or all."""
    quiet = [timing.seconds for timing in timings if is_quiet(timing)]
    every = [timing.seconds for timing in timings]
    row.median_s = statistics.median(quiet if quiet_alone else every)
    row.min_s = min(every)
    row.rounds = len(every)
    row.quiet = None if all(timing.others is None for timing in timings) else len(quiet)
    row.rate = work / row.median_s


def measure(
    table: Table,
    cases: Sequence[Case],
    budget: Budget,
    tables_left: int,
    device: torch.device,
) -> Table:
    """Fill the table: build every case, call it once or more, time all in turn, compare.

    A case that cannot run or that fails becomes a row that says why; the rest go on. tables_left:
    how many tables of the section share what is left of its time, this one included.
    """
    rows = {case.name: Row(case.name, dtype=case.dtype) for case in cases}
    runs: dict[str, tuple[Run, int]] = {}
    end = time.monotonic() + budget.share(tables_left)
    late = budget.left < -budget.seconds  # twice its time is spent
    for case in cases:
        row = rows[case.name]
        if case.missing or late:
            row.state, row.why = "skipped", case.missing or "the section's time was up"
            continue
        try:
            runs[case.name] = warmed(case, row, budget, device)
        except Exception as error:
            row.state, row.why = verdict(error)
    try:
        seconds = end - time.monotonic()
        found = in_turn(runs, budget, seconds, device)
        quiet_alone = enough_quiet(found.values())
        for name, timings in found.items():
            work = next(case.work for case in cases if case.name == name)
            summarise(rows[name], timings, work, quiet_alone=quiet_alone)
    except Exception as error:
        for name in runs:
            rows[name] = rows[name].gone(*verdict(error))
    table.rows += rows.values()
    table.compare()
    runs.clear()
    tidy(device)
    return table


def warmed(case: Case, row: Row, budget: Budget, device: torch.device) -> tuple[Run, int]:
    """The case's call, called before, and how often to repeat it; on a GPU also its peak memory."""
    on_gpu = device.type == "cuda"
    held = torch.cuda.memory_allocated(device) if on_gpu else 0
    run = case.build()
    # The first call allocates, packs weights and chooses kernels; it never counts. A long one need
    # not be repeated within a timing, so that its length tells enough.
    once = row.first_s = timed(run, 1, device).seconds
    if on_gpu:
        run()  # what was compiled on the first call may record its graph on the second
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    if on_gpu or once < 2 * budget.call_s:
        once = timed(run, 1, device).seconds
    if on_gpu:
        row.peak_mib = (torch.cuda.max_memory_allocated(device) - held) / 2**20
    return run, max(1, round(budget.call_s / max(once, 1e-6)))


def verdict(error: Exception) -> tuple[str, str]:
    """A row's state and reason after this error."""
    said = " ".join(str(error).split())[:200]
    if isinstance(error, CannotRunError):
        return "skipped", said
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in said:
        return "skipped", "does not fit in memory"
    return "failed", f"{type(error).__name__}: {said}"


def tidy(device: torch.device) -> None:
    """Give back what the last table held, so that the next one starts like it."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
