"""Pieces beside their likelihood: statistics, and runs that they share.

The measures of pitch, rhythm and texture are those of MusPy (Dong et al. 2020, arXiv 2008.01951) on
the time grid of the tokenizer; docs/music.md says where they differ. A measure is NaN for a piece
that does not have it, such as the entropy of a piece without notes.

The search for shared runs is exact. Prefix doubling (Karp, Miller and Rosenberg 1972; Manber and
Myers 1990) ranks the windows of 2^k symbols of all pieces, for k = 0, 1, ...: two windows are equal
where their ranks are. The last ranks sort all suffixes; the training suffix with the longest common
prefix is the nearest one before or after. O(n log^2 n) for n symbols.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np

from triptych.domains.music.conditions import SCALES
from triptych.domains.music.notes import (
    SILENT,
    Ids,
    Notes,
    on_grid,
    piano_roll,
    voice_grid,
)
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.rules import PERFECT
from triptych.files.progress import aligned

MAJOR = np.array([[(c - root) % 12 in SCALES["major"] for c in range(12)] for root in range(12)])
"""Which pitch classes belong to the major scale of each root, [12, 12]. A natural minor scale has
the pitch classes of its relative major scale."""


def piece_statistics(notes: Notes, tokenizer: MusicTokenizer) -> dict[str, float]:
    """Return the measures of one piece by name; its notes as `on_grid` gives them.

    Beats, bars and voices are those of the tokenizer; music without them lacks their measures.
    groove_consistency is that of Wu and Yang 2020 (arXiv 2008.01307), NaN for a piece of one bar.
    """
    roll = piano_roll(notes)  # [T, 128]
    sounding = roll.sum(1)  # [T]
    used = np.unique(notes.pitch)
    classes = np.bincount(notes.pitch % 12, minlength=12)
    shares = classes[classes > 0] / max(1, len(notes))
    entropy = float(-(shares * np.log2(shares)).sum() + 0.0)  # bits, 0 to log2(12) = 3.58
    density = _ratio(len(notes), len(roll))
    measures = {
        "pitch_class_entropy": entropy if len(notes) else math.nan,
        "scale_consistency": _ratio((MAJOR @ classes).max(), len(notes)),
        "polyphony": _ratio(roll.sum(), (sounding > 0).sum()),
        "polyphony_rate": _ratio((sounding > 2).sum(), len(roll)),
        "pitch_range": float(used[-1] - used[0]) if len(used) else math.nan,
        "n_pitches": float(len(used)),
        "notes_per_second": density * tokenizer.steps_per_second,
    }
    if (steps := tokenizer.steps_per_bar) is not None:
        onsets = np.zeros(len(roll) + -len(roll) % steps, dtype=bool)
        onsets[notes.onset] = True
        bars = onsets.reshape(-1, steps)
        agree = bars[1:] == bars[:-1]  # neighbouring bars, on whether a step has an onset
        measures["notes_per_bar"] = density * steps
        measures["groove_consistency"] = _ratio(agree.sum(), agree.size)
    if (steps := tokenizer.steps_per_beat) is not None:
        beats = np.pad(sounding > 0, (0, -len(roll) % steps)).reshape(-1, steps)
        measures["empty_beat_rate"] = _ratio((~beats.any(1)).sum(), len(beats))
    if tokenizer.voice_ranges:
        grid = voice_grid(notes, len(tokenizer.voice_ranges))
        measures |= voice_leading(grid)
        for voice, (name, (low, high)) in enumerate(tokenizer.voice_ranges.items()):
            pitch = notes.pitch[notes.part == voice]
            outside = ((pitch < low) | (pitch > high)).sum()
            measures[f"{name.lower()}_out_of_range"] = 100 * _ratio(outside, len(pitch))
    return measures


def voice_leading(grid: Ids) -> dict[str, float]:
    """Return crossings of neighbouring voices, parallel fifths and octaves per 100 transitions.

    A transition is a pair of consecutive steps between which a voice moves to another pitch. A
    crossing begins where a voice falls below the next lower one. Two voices are parallel where both
    move in the same direction and keep a fifth or an octave, simple or compound.

    grid: pitch of each voice in each step from the highest voice to the lowest, SILENT for a rest,
    [T, V].
    """
    sounds = grid != SILENT  # [T, V]
    motion = np.where(sounds[1:] & sounds[:-1], np.diff(grid, axis=0), 0)  # [T - 1, V]
    transitions = motion.any(1).sum()
    crossings = 0
    for upper, lower in pairwise(range(grid.shape[1])):
        crossed = sounds[:, upper] & sounds[:, lower] & (grid[:, upper] < grid[:, lower])  # [T]
        crossings += int((crossed & ~np.concatenate([[False], crossed[:-1]])).sum())
    counts = {"voice_crossings": crossings}
    for name, interval in PERFECT.items():
        parallel = 0
        for upper, lower in combinations(range(grid.shape[1]), 2):
            perfect = (grid[:, upper] - grid[:, lower]) % 12 == interval  # [T]
            together = motion[:, upper] * motion[:, lower] > 0  # [T - 1]
            parallel += int((together & perfect[1:] & perfect[:-1]).sum())
        counts[f"parallel_{name}"] = parallel
    return {name: 100 * _ratio(count, transitions) for name, count in counts.items()}


def means_and_deviations(pieces: Sequence[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Return mean, standard deviation and number of the pieces that have each measure.

    The deviation is that of the given pieces (divisor N). Mean and deviation are None for a measure
    that no piece has.
    """
    table: dict[str, dict[str, Any]] = {}
    for name in pieces[0] if pieces else ():
        values = np.array([piece[name] for piece in pieces])
        values = values[~np.isnan(values)]
        some = len(values) > 0
        table[name] = {
            "mean": float(values.mean()) if some else None,
            "std": float(values.std()) if some else None,
            "pieces": len(values),
        }
    return table


def _ratio(part: Any, whole: Any) -> float:
    """Return part / whole, NaN for a whole of 0."""
    return float(part) / float(whole) if whole else math.nan


class NamedPiece(NamedTuple):
    """Piece as its tokenizer writes it."""

    name: str
    tokens: Ids
    """Without END."""
    notes: Notes
    """In steps of the tokenizer's grid."""
    lines: dict[str, Ids]
    """Symbols of which runs are compared: tokens, and the intervals in semitones from each note to
    the next one by onset, then from the lowest pitch, which transposed music shares."""

    @classmethod
    def of(cls, name: str, tokens: Ids, tokenizer: MusicTokenizer) -> NamedPiece:
        """Return a piece of ids, which end at the first END."""
        tokens = tokenizer.without_end(tokens)
        notes = on_grid(tokenizer.to_score(tokens).notes_in_seconds, tokenizer.steps_per_second)
        return cls(name, tokens, notes, {"tokens": tokens, "intervals": np.diff(notes.pitch)})


def compare_with_training(
    groups: dict[str, list[NamedPiece]], training: Sequence[NamedPiece]
) -> dict[str, Any]:
    """Return the longest run that each piece shares with a training piece: {kind: {group: ...}}.

    A group has the mean, deviation and maximum of the lengths, and for each piece the length of its
    run and the name of the training piece.
    """
    shared: dict[str, Any] = {}
    pieces = [piece for group in groups.values() for piece in group]
    for kind in training[0].lines:
        symbols = ([piece.lines[kind] for piece in some] for some in (pieces, training))
        runs = iter(longest_shared_runs(*symbols))
        shared[kind] = {}
        for group, members in groups.items():
            entries: list[dict[str, Any]] = []
            for piece in members:
                length, source = next(runs)
                entries.append({"piece": piece.name, "length": length})
                if length:
                    entries[-1]["training_piece"] = training[source].name
            lengths = np.array([entry["length"] for entry in entries])
            shared[kind][group] = {
                "mean": float(lengths.mean()),
                "std": float(lengths.std()),
                "max": int(lengths.max()),
                "runs": entries,
            }
    return shared


def text_lines(details: dict[str, Any]) -> list[str]:
    """Return both comparisons as lines of text.

    details: as `evaluation.sample_statistics` returns them.
    """
    statistics = details["statistics"]
    groups = statistics["groups"]
    number = {group: statistics["pieces"][group] for group in groups}
    table = [["", *(f"{group} ({number[group]})" for group in groups)]]
    for measure in next(iter(groups.values())):
        table.append([measure, *(_mean_and_std(group[measure]) for group in groups.values())])
    lines = [
        f"statistics, mean ± standard deviation; samples of {statistics['sample_length']} "
        f"{statistics['sample_unit']}, seed {statistics['seed']}:",
        *aligned(table, indent="  "),
    ]
    shared = details["memorisation"]
    if "not_computed" in shared:
        return [*lines, f"runs shared with training pieces: {shared['not_computed']}"]
    table = [["", *next(iter(shared["runs"].values()))]]
    longest = []
    for kind, by_group in shared["runs"].items():
        cells = [f"{_mean_and_std(row)}, max {row['max']}" for row in by_group.values()]
        table.append([kind, *cells])
        run = max(by_group["samples"]["runs"], key=lambda entry: entry["length"])
        if run["length"]:
            longest.append(
                f"  {run['length']} {kind} of {run['piece']} are in {run['training_piece']}"
            )
    lines.append(f"longest run shared with one of {shared['training_pieces']} training pieces:")
    return [*lines, *aligned(table, indent="  "), *longest]


def _mean_and_std(statistics: dict[str, Any]) -> str:
    if statistics["mean"] is None:
        return "none"
    return f"{statistics['mean']:.3f} ± {statistics['std']:.3f}"


def longest_shared_runs(pieces: Sequence[Ids], training: Sequence[Ids]) -> list[tuple[int, int]]:
    """Return the longest run that each piece shares with any of the training pieces.

    Its length in symbols, 0 for none, and the index of a training piece that contains it.
    pieces, training: symbols of each as whole numbers; at least one piece of both.
    """
    rows = [*training, *pieces]
    ends = np.cumsum([len(row) + 1 for row in rows])  # of each row with its end mark
    # The end mark of each row is a symbol of its own, so that no run goes beyond a row.
    mark = 1 + max(int(row.max(initial=0)) for row in rows)
    text = np.concatenate([np.append(row, mark + number) for number, row in enumerate(rows)])
    starts = np.concatenate([[0], ends[:-1]])
    n_training = int(starts[len(training)])
    queries = np.arange(n_training, len(text))

    levels = _window_numbers(text, longest=max(map(len, pieces)) + 1)
    ranks = levels[-1]
    suffixes = np.argsort(ranks[:n_training], kind="stable")  # of the training, in order
    places = np.searchsorted(ranks[suffixes], ranks[queries], side="right")
    best = match = np.zeros_like(queries)
    for neighbours in (places - 1, places):
        other = suffixes[neighbours.clip(0, n_training - 1)]
        length = _common_prefix(levels, queries, other)
        longer = length > best
        best, match = np.where(longer, length, best), np.where(longer, other, match)

    runs = []
    for number in range(len(training), len(rows)):
        here = slice(starts[number] - n_training, ends[number] - n_training)
        start = int(best[here].argmax())
        row = int(np.searchsorted(ends, match[here][start], side="right"))
        runs.append((int(best[here][start]), row))
    return runs


def _window_numbers(text: Ids, *, longest: int) -> list[Ids]:
    """Return, for k = 0, 1, ..., the rank of each position's window of 2^k symbols.

    Equal windows have equal ranks. Windows that begin near the end of the text are cut there. Stops
    when all ranks differ or windows have at least `longest` symbols.
    """
    levels = [np.unique(text, return_inverse=True)[1].astype(np.int64)]
    width = 1
    while width < longest and levels[-1].max() < len(text) - 1:
        ranks = levels[-1]
        second = np.zeros_like(ranks)
        second[: len(ranks) - width] = ranks[width:] + 1
        pairs = ranks * (len(text) + 1) + second
        levels.append(np.unique(pairs, return_inverse=True)[1].astype(np.int64))
        width *= 2
    return levels


def _common_prefix(levels: list[Ids], left: Ids, right: Ids) -> Ids:
    """Return the number of symbols that agree from each pair of positions on, [Q]."""
    length = np.zeros(len(left), dtype=np.int64)
    for level in range(len(levels) - 1, -1, -1):
        ranks = levels[level]
        # Never beyond the text: the two suffixes differ at an end mark at the latest.
        length += (ranks[left + length] == ranks[right + length]) * 2**level
    return length
