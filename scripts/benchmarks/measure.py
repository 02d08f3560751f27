"""Interleaved timings: every round times every case once, and ratios are taken within a round."""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from torch.utils import benchmark

from benchmarks.setting import SECONDS, Setting

Run = Callable[[], object]
CALL_SECONDS = 0.05
"""Shorter calls are repeated until one timing lasts this long."""
MIN_ROUNDS, MAX_ROUNDS = 3, 11
NOISY = 0.05
"""Share of the machine that other processes use from which a round is noisy."""


@dataclass
class Row:
    """Result of one case."""

    name: str
    problem: str = ""
    """Reason why it was skipped or failed, or empty."""
    failed: bool = False
    milliseconds: float | None = None
    """Median over the rounds that count."""
    rate: float | None = None
    """Units of work per second."""
    ratio: float | None = None
    """Speed over that of the table's base: median of the ratios within each round."""
    spread: float | None = None
    """Interquartile range of these ratios over their median; of the base's times over theirs."""
    extra: dict[str, float] = field(default_factory=dict)
    """Further figures, by column."""


@dataclass
class Table:
    """Results of cases that do the same work."""

    key: str
    title: str
    base: str = ""
    """Name of the row that the ratios refer to."""
    unit: str = ""
    work: float = 0.0
    """Units that one call does."""
    rounds: int = 0
    noisy: int = 0
    """Rounds in which other processes were busy."""
    rows: list[Row] = field(default_factory=list)

    def row(self, name: str) -> Row | None:
        """The measured row of this name, or None."""
        return next((r for r in self.rows if r.name == name and r.milliseconds is not None), None)


def measure(
    setting: Setting,
    table: Table,
    builders: dict[str, Callable[[], Run]],
    skip: dict[str, str] | None = None,
) -> Table:
    """Build and warm up the cases, time them round by round, and fill the table.

    builders: by name, functions that return the call to time. skip: reasons, by the beginning of
    the names that they concern. A case that fails becomes a row that says why; the others go on.
    Noisy rounds do not count where at least MIN_ROUNDS are quiet.
    """
    print(f"bench: {table.title}", file=sys.stderr, flush=True)
    runs: dict[str, tuple[Run, int]] = {}
    for name, build in builders.items():
        row = Row(name, next((why for p, why in (skip or {}).items() if why and p in name), ""))
        table.rows.append(row)
        if row.problem:
            continue
        try:
            run = build()
            seconds = timed(run, 1)  # the first call allocates and chooses kernels
            if seconds < 10 * CALL_SECONDS:
                seconds = timed(run, 1)
            runs[name] = (run, max(1, round(CALL_SECONDS / seconds)))
        except Exception as error:
            row.problem = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            row.failed = True
    times: dict[str, list[float]] = {name: [] for name in runs}
    quiet: list[bool] = []
    start = benchmark.timer()
    while runs and len(quiet) < (2 if setting.scale == "tiny" else MAX_ROUNDS):
        begin, others = benchmark.timer(), other_processes_seconds()
        for name in list(runs)[:: -1 if len(quiet) % 2 else 1]:
            times[name].append(timed(*runs[name]))
        machine = (benchmark.timer() - begin) * (os.cpu_count() or 1)
        quiet.append(other_processes_seconds() - others < NOISY * machine)
        if len(quiet) >= MIN_ROUNDS and benchmark.timer() - start > SECONDS[setting.scale]:
            break
    table.rounds, table.noisy = len(quiet), quiet.count(False)
    counted = [i for i, is_quiet in enumerate(quiet) if is_quiet]
    if len(counted) < MIN_ROUNDS:
        counted = list(range(len(quiet)))
    for row in (row for row in table.rows if row.name in times):
        seconds = [times[row.name][i] for i in counted]
        row.milliseconds = 1e3 * statistics.median(seconds)
        row.rate = table.work / statistics.median(seconds)
        if table.base in times:
            ratios = [times[table.base][i] / times[row.name][i] for i in counted]
            row.ratio = statistics.median(ratios)
            row.spread = spread(seconds if row.name == table.base else ratios)
    return table


def timed(run: Run, calls: int) -> float:
    """Seconds of one call, the mean of `calls` calls; waits for a GPU."""
    start = benchmark.timer()
    for _ in range(calls):
        run()
    return (benchmark.timer() - start) / calls


def spread(values: list[float]) -> float:
    """Interquartile range over the median."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / statistics.median(values)


def other_processes_seconds() -> float:
    """CPU seconds of all other processes since the machine's start; 0 off Linux."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except OSError:
        return 0.0
    own = resource.getrusage(resource.RUSAGE_SELF)
    busy = sum(ticks) - ticks[3] - ticks[4]  # without idle and I/O wait
    return busy / os.sysconf("SC_CLK_TCK") - own.ru_utime - own.ru_stime
