"""Statistics of pieces beside their likelihood: pitch, rhythm, texture and voice leading.

The measures of pitch, rhythm and texture are those of MusPy (Dong et al. 2020, arXiv 2008.01951, as
in version 0.5.0), on the time grid of the tokenizer, with two differences. MusPy always counts
length // beat + 1 beats and length // bar + 1 bars, one too many for a piece that ends at a bar
line, and a note that ends at a beat also fills the next beat. Here only time before the last
release counts, and a note fills the beats in which it sounds. The values agree for pieces in which
no note ends at a beat.

A measure is NaN for a piece that does not have it, such as the entropy of a piece without notes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.tokenizers.base import Ids, MusicTokenizer

if TYPE_CHECKING:
    import pretty_midi

N_PITCHES = 128
SILENT = -1
MAJOR = (0, 2, 4, 5, 7, 9, 11)
SCALES = np.array([[(c - root) % 12 in MAJOR for c in range(12)] for root in range(12)])
"""Which pitch classes belong to the major scale of each root, [12, 12]. A natural minor scale has
the pitch classes of its relative major scale."""
MANY = 2
"""`polyphony_rate` counts the steps in which more pitches than these sound, as in MusPy."""
PERFECT = {"fifths": 7, "octaves": 0}
"""Intervals in semitones, modulo 12, that two voices should not keep while both move."""


@dataclass(frozen=True)
class NoteTable:
    """Notes of a piece on its time grid, by onset, then from the lowest pitch; arrays [N]."""

    pitch: Ids
    """MIDI pitches."""
    start: Ids
    """First step of each note."""
    stop: Ids
    """Step after the last one."""
    voice: Ids
    """Index of the instrument."""

    @classmethod
    def of(cls, midi: pretty_midi.PrettyMIDI, steps_per_second: float) -> NoteTable:
        """Return the notes of a piece, drums excluded; every note lasts at least one step."""
        rows = [
            (note.pitch, note.start, note.end, voice)
            for voice, part in enumerate(midi.instruments)
            for note in part.notes
            if not part.is_drum
        ]
        table = np.array(rows, dtype=np.float64).reshape(-1, 4)  # [N, 4]
        pitch, voice = table[:, 0].astype(np.int64), table[:, 3].astype(np.int64)
        start, stop = np.rint(table[:, 1:3] * steps_per_second).astype(np.int64).T
        order = np.lexsort((voice, pitch, start))
        stop = np.maximum(stop, start + 1)
        return cls(pitch[order], start[order], stop[order], voice[order])

    def __len__(self) -> int:
        return len(self.pitch)

    @property
    def n_steps(self) -> int:
        """Length of the piece up to its last release, in steps."""
        return int(self.stop.max(initial=0))

    def piano_roll(self) -> NDArray[np.bool_]:
        """Return which pitches sound in each step, [T, 128]."""
        roll = np.zeros((self.n_steps, N_PITCHES), dtype=bool)
        for pitch, start, stop in zip(self.pitch, self.start, self.stop, strict=True):
            roll[start:stop, pitch] = True
        return roll

    def voice_grid(self, n_voices: int) -> Ids:
        """Return the pitch of each voice in each step, SILENT for a rest, [T, V]."""
        grid = np.full((self.n_steps, n_voices), SILENT, dtype=np.int64)
        for pitch, start, stop, voice in zip(
            self.pitch, self.start, self.stop, self.voice, strict=True
        ):
            grid[start:stop, voice] = pitch
        return grid


def piece_statistics(notes: NoteTable, tokenizer: MusicTokenizer) -> dict[str, float]:
    """Return the measures of one piece by name.

    Beats, bars and voices are those of the tokenizer; music without them lacks their measures.
    """
    roll = notes.piano_roll()  # [T, 128]
    sounding = roll.sum(1)  # [T]
    used = np.unique(notes.pitch)
    n_sounding = (sounding > 0).sum()
    density = _ratio(len(notes), notes.n_steps)
    measures = {
        "pitch_class_entropy": pitch_class_entropy(notes),
        "scale_consistency": scale_consistency(notes),
        "polyphony": _ratio(roll.sum(), n_sounding),
        "polyphony_rate": _ratio((sounding > MANY).sum(), len(roll)),
        "pitch_range": float(used[-1] - used[0]) if len(used) else math.nan,
        "n_pitches": float(len(used)),
        "notes_per_second": density * tokenizer.steps_per_second,
    }
    if tokenizer.steps_per_bar is not None:
        measures["notes_per_bar"] = density * tokenizer.steps_per_bar
        measures["groove_consistency"] = groove_consistency(notes, tokenizer.steps_per_bar)
    if tokenizer.steps_per_beat is not None:
        measures["empty_beat_rate"] = empty_beat_rate(sounding > 0, tokenizer.steps_per_beat)
    if tokenizer.voice_ranges:
        grid = notes.voice_grid(len(tokenizer.voice_ranges))
        measures |= voice_leading(grid)
        for voice, (name, (low, high)) in enumerate(tokenizer.voice_ranges.items()):
            pitch = notes.pitch[notes.voice == voice]
            outside = ((pitch < low) | (pitch > high)).sum()
            measures[f"{name.lower()}_out_of_range"] = 100 * _ratio(outside, len(pitch))
    return measures


def pitch_class_entropy(notes: NoteTable) -> float:
    """Return the entropy of the notes' pitch classes, in bits: 0 to log2(12) = 3.58."""
    counts = np.bincount(notes.pitch % 12, minlength=12)
    shares = counts[counts > 0] / max(1, len(notes))
    return float(-(shares * np.log2(shares)).sum() + 0.0) if len(notes) else math.nan


def scale_consistency(notes: NoteTable) -> float:
    """Return the largest share of notes that belong to one major or natural minor scale."""
    counts = np.bincount(notes.pitch % 12, minlength=12)
    return _ratio((SCALES @ counts).max(), len(notes))


def groove_consistency(notes: NoteTable, steps_per_bar: int) -> float:
    """Return the mean share of steps at which two neighbouring bars agree on having an onset.

    Wu and Yang 2020 (arXiv 2008.01307). NaN for a piece of one bar.
    """
    n_bars = -(-notes.n_steps // steps_per_bar)
    onsets = np.zeros(n_bars * steps_per_bar, dtype=bool)
    onsets[notes.start] = True
    bars = onsets.reshape(n_bars, steps_per_bar)
    return float((bars[1:] == bars[:-1]).mean()) if n_bars > 1 else math.nan


def empty_beat_rate(sounds: NDArray[np.bool_], steps_per_beat: int) -> float:
    """Return the share of beats in which nothing sounds.

    sounds: whether a step has a pitch, [T].
    """
    padded = np.pad(sounds, (0, -len(sounds) % steps_per_beat))
    beats = padded.reshape(-1, steps_per_beat)
    return _ratio((~beats.any(1)).sum(), len(beats))


def voice_leading(grid: Ids) -> dict[str, float]:
    """Return crossings of neighbouring voices, parallel fifths and octaves per 100 transitions.

    A transition is a pair of consecutive steps between which a voice moves from one pitch to
    another. A crossing begins where a voice falls below the next lower one. Two voices are parallel
    where both move, in the same direction, from a perfect fifth to a perfect fifth or from an
    octave (or unison) to an octave; compound intervals count as simple ones.

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


def self_similarity(
    notes: NoteTable, segment: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the similarity of all pairs of segments, by pitch classes and by pitches: two [S, S].

    The similarity is the cosine of the two segments' sounding times per pitch class or pitch, 0 for
    a silent segment (Foote 1999, "Visualizing music and audio using self-similarity").

    segment: length of a segment in steps; the last one may be shorter.
    """
    starts = np.arange(0, notes.n_steps, segment)
    times = np.add.reduceat(notes.piano_roll(), starts, axis=0, dtype=np.float64)  # [S, 128]
    octaves = np.pad(times, ((0, 0), (0, -N_PITCHES % 12)))  # [S, 132]
    return _cosines(octaves.reshape(len(times), -1, 12).sum(1)), _cosines(times)


def _cosines(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows, [S, F] -> [S, S]; 0 for a row of zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.where(lengths > 0, lengths, 1)
    cosines: NDArray[np.float64] = units @ units.T
    return cosines


def _ratio(part: Any, whole: Any) -> float:
    """Return part / whole, NaN for a whole of 0."""
    return float(part) / float(whole) if whole else math.nan
