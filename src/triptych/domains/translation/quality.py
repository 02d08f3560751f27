"""What sentence pairs look like: copies, repetitions, swapped sides, shifted lines."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from triptych.domains.translation.sources import Pair
from triptych.files.leaks import Digests
from triptych.files.progress import aligned

LOOKED_AT = 20_000
"""Pairs, evenly spaced, whose languages are compared."""
BLOCK = 500
"""Neighbouring lines in which a shift is looked for."""
SHIFTS = [shift for shift in range(-5, 6) if shift]
N_USUAL = 2
"""Lines of a table without anything odd."""
FAR = 3.0
"""Factor by which the lengths of a pair differ from the usual ratio when they are far apart."""


def table(splits: Mapping[str, Sequence[Pair]]) -> list[str]:
    """Return lines with the number of pairs of each split and, where there are any, of odd ones."""
    counts = {split: _counts(pairs) for split, pairs in splits.items()}
    names = list(dict.fromkeys(name for found in counts.values() for name in found))
    several = len(splits) > 1
    rows = [["", *splits, *["all"] * several]]
    for name in names:
        numbers = [found.get(name, 0) for found in counts.values()]
        if name == names[0] or any(numbers):
            numbers += [sum(numbers)] * several
            rows.append([name, *(f"{number:,}" for number in numbers)])
    odd = (f"{split}: {told}" for split in splits for told in _order(splits[split]))
    return [*aligned(rows, right_from=1), *odd]


def _counts(pairs: Sequence[Pair]) -> dict[str, int]:
    full = [pair for pair in pairs if all(pair)]
    ratios = np.array([len(target) / len(source) for source, target in full])  # [N]
    usual = float(np.median(ratios)) if full else 1.0
    short = np.array([max(map(len, pair)) < 20 for pair in full], bool)  # [N]
    far = (np.abs(np.log(ratios / usual)) > np.log(FAR)) & ~short  # [N]
    equal = sum(a.lower() == b.lower() and any(map(str.isalpha, a)) for a, b in full)
    every = -(-len(full) // LOOKED_AT)
    swapped = swapped_pairs(full[:: max(1, every)])
    part = f" (of every {every}th)" if every > 1 else ""
    return {
        "sentence pairs": len(pairs),
        "with an empty side": len(pairs) - len(full),
        "both sides equal": equal,
        "pairs that come again": Digests.of(full).repeated,
        f"length ratio {FAR:.0f} times off the usual one": int(far.sum()),
        f"sides that seem swapped{part}": len(swapped),
    }


def swapped_pairs(pairs: Sequence[Pair]) -> list[int]:
    """Return the numbers of pairs whose source looks like a target, and the other way round.

    By the mean of log(n / m) of their pairs of letters, where n and m count these on both sides.
    """
    counts: list[Counter[str]] = [Counter(), Counter()]
    for pair in pairs:
        for side, text in zip(counts, pair, strict=True):
            side.update(map("".join, pairwise(text)))
    sources, targets = counts
    same = max(1, targets.total()) / max(1, sources.total())
    logs = {
        letters: math.log((sources[letters] + 1) / (targets[letters] + 1) * same)
        for letters in {*sources, *targets}
    }

    def score(text: str) -> float:
        return sum(logs["".join(each)] for each in pairwise(text)) / max(1, len(text) - 1)

    return [n for n, (a, b) in enumerate(pairs) if score(a) < -0.2 and score(b) > 0.2]


def _order(pairs: Sequence[Pair]) -> list[str]:
    """Return sentences about lines that are not those of the other side, by their lengths."""
    sizes = np.array([[len(a), len(b)] for a, b in pairs], float).reshape(-1, 2)
    lengths = np.log1p(sizes).T  # [2, N]
    if len(pairs) < BLOCK // 5 or min(lengths.std(1)) < 0.05:
        return []
    starts = [n for n in range(0, len(pairs), BLOCK) if len(pairs) - n >= BLOCK // 5]
    shifted = []
    for start in starts:
        source, target = lengths[:, start : start + BLOCK]
        by_shift = {shift: _correlation(source, target, shift) for shift in SHIFTS}
        best = max(by_shift, key=by_shift.__getitem__)
        if by_shift[best] > 0.4 and _correlation(source, target) < by_shift[best] - 0.3:
            shifted.append((start, best))
    if shifted:
        start, best = shifted[0]
        return [
            f"from line {start + 1:,} on the targets seem shifted by {abs(best)} "
            f"({len(shifted)} of {len(starts)} parts of {BLOCK} lines)"
        ]
    together = _correlation(*lengths)
    if together < 0.2:
        return [
            f"the lengths of both sides hardly go together (correlation {together:.2f}): are the "
            "lines those of each other?"
        ]
    return []


def _correlation(source: NDArray[np.float64], target: NDArray[np.float64], shift: int = 0) -> float:
    """Return the correlation of source n and target n + shift; 0 where one side is constant."""
    a = source[max(0, -shift) : len(source) - max(0, shift)]
    b = target[max(0, shift) : len(target) - max(0, -shift)]
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
