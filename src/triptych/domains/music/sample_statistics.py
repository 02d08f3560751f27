"""Samples beside the pieces of a split: statistics, and runs shared with training pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.memorisation import longest_shared_runs
from triptych.domains.music.notes import Ids, Notes, on_grid
from triptych.domains.music.statistics import means_and_deviations, piece_statistics
from triptych.domains.music.tokenizers.base import MusicTokenizer

KINDS = ("tokens", "intervals")
"""Forms in which runs are compared: tokens, and the intervals between consecutive notes."""


@dataclass(frozen=True)
class NamedPiece:
    """Piece as its tokenizer writes it."""

    name: str
    tokens: Ids
    """Without END."""
    notes: Notes
    """In steps of the tokenizer's grid."""

    @classmethod
    def of(cls, name: str, tokens: Ids, tokenizer: MusicTokenizer) -> NamedPiece:
        """Return a piece of ids, which end at the first END."""
        if tokenizer.end is not None:
            tokens = tokens[np.cumsum(tokens == tokenizer.end) == 0]
        notes = on_grid(Notes.of_midi(tokenizer.to_midi(tokens)), tokenizer.steps_per_second)
        return cls(name, tokens, notes)

    def symbols(self, kind: str) -> Ids:
        """Return what runs of a kind consist of.

        Intervals, in semitones, lead from each note to the next one by onset, then from the lowest
        pitch; transposed music has the same.
        """
        return self.tokens if kind == "tokens" else np.diff(self.notes.pitch)

    def seconds(self, kind: str, tokenizer: MusicTokenizer) -> NDArray[np.float64]:
        """Return the time at which each symbol of a kind begins."""
        if kind == "tokens":
            return tokenizer.seconds_and_pitches(self.tokens)[0]
        return self.notes.onset / tokenizer.steps_per_second


def compare_statistics(
    groups: dict[str, list[NamedPiece]], tokenizer: MusicTokenizer
) -> dict[str, Any]:
    """Return mean and deviation of each measure of each group of pieces: {group: {measure: ...}}.

    See `statistics.means_and_deviations` for their form.
    """
    return {
        group: means_and_deviations([piece_statistics(piece.notes, tokenizer) for piece in pieces])
        for group, pieces in groups.items()
    }


def compare_with_training(
    groups: dict[str, list[NamedPiece]], training: Sequence[NamedPiece], tokenizer: MusicTokenizer
) -> dict[str, Any]:
    """Return the longest run that each piece shares with a training piece: {kind: {group: ...}}.

    A group has the mean, deviation and maximum of the lengths, and for each piece the length of its
    run and its first symbol (index and time) in the piece and in the training piece.
    """
    shared: dict[str, Any] = {}
    for kind in KINDS:
        pieces = [piece for group in groups.values() for piece in group]
        rows = longest_shared_runs(
            [piece.symbols(kind) for piece in pieces], [piece.symbols(kind) for piece in training]
        )
        runs = iter(zip(pieces, rows, strict=True))
        shared[kind] = {}
        for group, members in groups.items():
            entries = []
            for piece, run in (next(runs) for _ in members):
                entry: dict[str, Any] = {"piece": piece.name, "length": run.length}
                if run.length:
                    source = training[run.training_piece]
                    entry |= {
                        "start": run.start,
                        "seconds": float(piece.seconds(kind, tokenizer)[run.start]),
                        "training_piece": source.name,
                        "training_start": run.training_start,
                        "training_seconds": float(
                            source.seconds(kind, tokenizer)[run.training_start]
                        ),
                    }
                entries.append(entry)
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

    details: as `MusicModel.statistics` returns them.
    """
    statistics = details["statistics"]
    groups = statistics["groups"]
    number = {group: statistics["pieces"][group] for group in groups}
    table = [["", *(f"{group} ({number[group]})" for group in groups)]]
    for measure in next(iter(groups.values())):
        table.append([measure, *(_mean_and_std(groups[group][measure]) for group in groups)])
    lines = [
        f"statistics, mean ± standard deviation; samples of {statistics['sample_length']} "
        f"{statistics['sample_unit']}, seed {statistics['seed']}:",
        *_aligned(table),
    ]
    shared = details["memorisation"]
    if "not_computed" in shared:
        return [*lines, f"runs shared with training pieces: {shared['not_computed']}"]
    table = [["", *next(iter(shared["runs"].values()))]]
    longest = []
    for kind, by_group in shared["runs"].items():
        table.append(
            [kind, *(f"{_mean_and_std(row)}, max {row['max']}" for row in by_group.values())]
        )
        run = max(by_group["samples"]["runs"], key=lambda entry: entry["length"])
        if run["length"]:
            longest.append(
                f"  {run['length']} {kind} of {run['piece']} from {run['seconds']:.1f} s are in "
                f"{run['training_piece']} from {run['training_seconds']:.1f} s"
            )
    count = shared["training_pieces"]
    lines += [f"longest run shared with one of {count} training pieces:", *_aligned(table)]
    return lines + longest


def _mean_and_std(statistics: dict[str, Any]) -> str:
    if statistics["mean"] is None:
        return "none"
    return f"{statistics['mean']:.3f} ± {statistics['std']:.3f}"


def _aligned(table: list[list[str]]) -> list[str]:
    """Return the rows of a table as indented lines with columns of one width."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = ("  ".join(map(str.ljust, row, widths)) for row in table)
    return [f"  {row}".rstrip() for row in rows]
