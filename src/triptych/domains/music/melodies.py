"""Which chorales share a tune, in any key: they must not lie in two splits.

Bach set the same hymn tunes again and again, and the collections hold copies of one setting. A
model that saw one setting in training knows the soprano of the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from triptych.domains.music.chorales import SILENT, Grid

PHRASE = 8
"""Length of a compared run of the melody, in intervals: about a line of a hymn."""

ALIKE = 0.4
"""Share of the shorter melody's runs that another melody must hold to be the same tune.

On music21's 364 chorales most pairs that share anything lie below 0.2 and settings of one hymn
mostly above 0.5; at 0.4 there are 237 tunes, the most frequent with ten settings.
"""


def runs(grid: Grid) -> set[tuple[int, ...]]:
    """Give all runs of PHRASE intervals of the soprano, repeated notes joined, rests left out.

    Intervals do not change in transposition. A melody shorter than a run is one run.
    """
    soprano = grid[:, 0]
    soprano = soprano[soprano != SILENT]
    changes = np.flatnonzero(np.diff(soprano))
    intervals = tuple(np.diff(soprano)[changes].tolist())
    last = max(0, len(intervals) - PHRASE)
    return {intervals[start : start + PHRASE] for start in range(last + 1)}


def group(grids: list[Grid]) -> list[list[int]]:
    """Put the numbers of pieces with one tune together; groups and members in rising order."""
    tunes = [runs(grid) for grid in grids]
    leader = list(range(len(grids)))

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    holders: dict[tuple[int, ...], list[int]] = defaultdict(list)
    shared: Counter[tuple[int, int]] = Counter()
    for second, tune in enumerate(tunes):
        for run in tune:
            shared.update((first, second) for first in holders[run])
            holders[run].append(second)
    for (first, second), count in shared.items():
        if count >= ALIKE * min(len(tunes[first]), len(tunes[second])):
            one, other = sorted((find(first), find(second)))
            leader[other] = one
    members: dict[int, list[int]] = {}
    for index in range(len(grids)):
        members.setdefault(find(index), []).append(index)
    return list(members.values())
