"""What a score is written with: measures, voices, and note values with their ties and tuplets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from triptych.domains.music.notes import Ids, Score

NOTE_TYPES = {
    Fraction(8): "breve", Fraction(4): "whole", Fraction(2): "half", Fraction(1): "quarter",
    Fraction(1, 2): "eighth", Fraction(1, 4): "16th", Fraction(1, 8): "32nd",
    Fraction(1, 16): "64th", Fraction(1, 32): "128th", Fraction(1, 64): "256th",
}  # fmt: skip
"""Name in MusicXML of each note value, in quarters."""
WRITTEN = {
    value * dot: (name, dot > 1)
    for value, name in NOTE_TYPES.items()
    for dot in (Fraction(1), Fraction(3, 2))
}
"""Name, and whether it has a dot, of each time that one note fills, in quarters."""
EXACT = (8, 12, 16, 24, 32, 48, 5, 20, 40, 7, 28, 9, 36)
"""Parts of a quarter of which one has all notes in it, that stay where they are."""
COARSE = (8, 12)
"""Parts of a quarter to which all others move."""
MAX_VOICES = 4
"""Most voices of a staff; what overlaps more often becomes tied chords of the last one."""
MIDDLE_C = 60
"""Lowest pitch of the right hand."""
TUPLETS = ((3, 2), (5, 4), (7, 4), (9, 8))
"""Number of notes, and the number in whose time they sound."""
VELOCITY, FORTE = 80, 90
"""Velocities of notes without one, and of 100 percent."""
DRUM_PLACES = {
    35: ("F", 4, "normal"), 36: ("F", 4, "normal"), 37: ("C", 5, "x"), 38: ("C", 5, "normal"),
    39: ("C", 5, "x"), 40: ("C", 5, "normal"), 41: ("G", 4, "normal"), 42: ("G", 5, "x"),
    43: ("A", 4, "normal"), 44: ("D", 4, "x"), 45: ("B", 4, "normal"), 46: ("G", 5, "circle-x"),
    47: ("D", 5, "normal"), 48: ("D", 5, "normal"), 49: ("A", 5, "x"), 50: ("E", 5, "normal"),
    51: ("F", 5, "x"), 52: ("A", 5, "x"), 53: ("F", 5, "diamond"), 54: ("E", 5, "x"),
    55: ("A", 5, "x"), 56: ("E", 5, "triangle"), 57: ("A", 5, "x"), 59: ("F", 5, "x"),
}  # fmt: skip
"""Pitch of a drum in General MIDI -> step and octave of its place on the staff, and notehead."""


class Note(NamedTuple):
    """Note of a chord."""

    pitch: int
    velocity: int
    program: int


class Chord(NamedTuple):
    """Notes of one onset and release, in quarters, from the lowest."""

    onset: Fraction
    release: Fraction
    notes: list[Note]


class Bar(NamedTuple):
    """A measure; times in quarters."""

    start: Fraction
    length: Fraction
    meter: tuple[int, int]
    missing: Fraction
    """What it lacks at its beginning, of a bar of its meter."""
    number: int


@dataclass(frozen=True)
class Value:
    """Time in quarters in which nothing begins or ends in a voice; a rest without chords."""

    start: Fraction
    stop: Fraction
    chords: Sequence[Chord]
    ratio: tuple[int, int] = (1, 1)
    """Of the tuplet that it is in, as in TUPLETS."""
    bracket: str = ""
    """start or stop of a tuplet."""

    @property
    def written(self) -> Fraction:
        """Its length in quarters as it is written, in a tuplet longer than it sounds."""
        return (self.stop - self.start) * Fraction(*self.ratio)

    @property
    def shape(self) -> tuple[str, bool]:
        """Name of its note value and whether it has a dot, of the nearest one that is written."""
        written = self.written
        if written not in WRITTEN:
            written = min(WRITTEN, key=lambda known: abs(known - written))
        return WRITTEN[written]


@dataclass(frozen=True)
class Span:
    """Part of a measure: a number of equal units of its meter."""

    start: Fraction
    unit: Fraction
    """In quarters."""
    count: int
    ratio: tuple[int, int] = (1, 1)
    """Of the tuplet that it is, as in TUPLETS."""

    @property
    def stop(self) -> Fraction:
        """Its end in quarters."""
        return self.start + self.count * self.unit

    def parts(self) -> list[Span]:
        """Return its beats: halves where there are, thirds in compound meters, or units."""
        if self.count == 1:
            number, count, unit = 2, 1, self.unit / 2
        elif self.count % 2 == 0:
            number, count, unit = 2, self.count // 2, self.unit
        else:
            count = 3 if self.count > 3 and self.count % 3 == 0 else 1
            number, unit = self.count // count, self.unit
        starts = (self.start + place * count * unit for place in range(number))
        return [Span(start, unit, count, self.ratio) for start in starts]

    def is_plain(self, cuts: set[Fraction]) -> bool:
        """Whether halves of its units give all times within it."""
        return all(
            _is_binary((cut - self.start) / self.unit)
            for cut in cuts
            if self.start < cut < self.stop
        )

    def tuplet(self, cuts: set[Fraction]) -> Span | None:
        """Return it as the tuplet that all times within it need."""
        inside = [cut - self.start for cut in cuts if self.start < cut < self.stop]
        for actual, normal in TUPLETS:
            unit = (self.stop - self.start) / actual
            if all(_is_binary(cut / unit) for cut in inside):
                return Span(self.start, unit, actual, (actual, normal))
        return None


def _is_binary(number: Fraction) -> bool:
    return number.denominator & (number.denominator - 1) == 0


def bars_of(score: Score, ticks: Ids) -> list[Bar]:
    """Return the measures; ticks: `Score.bars`."""
    changes = [(0, (4, 4)), *((tick, (count, unit)) for tick, count, unit in score.time_signatures)]
    at = [tick for tick, _ in changes]
    meters = [changes[bisect_right(at, tick) - 1][1] for tick in ticks[:-1].tolist()]
    lengths = [
        Fraction(max(1, round(96 * length / score.ticks_per_quarter)), 96)
        for length in np.diff(ticks).tolist()
    ]
    full = [Fraction(4 * count, unit) for count, unit in meters]
    missing, end = [Fraction(0)] * len(meters), len(meters) - 1
    # A short first or last bar with a meter of its own is an incomplete bar of the other meter.
    if lengths[0] < full[min(1, end)]:
        meters[0], missing[0] = meters[min(1, end)], full[min(1, end)] - lengths[0]
    if lengths[end] < full[max(0, end - 1)]:
        meters[end] = meters[max(0, end - 1)]
    bars, start = list[Bar](), Fraction(0)
    for number, bar in enumerate(zip(lengths, meters, missing, strict=True), int(not missing[0])):
        bars.append(Bar(start, *bar, number))
        start += bar[0]
    return bars


def snapped(times: Iterable[int], ticks: Ids, bars: list[Bar], unit: int) -> dict[int, Fraction]:
    """Return the time in quarters of each tick; unit: ticks per quarter.

    All times in a quarter are multiples of one of the EXACT grids, or move to a COARSE one.
    """
    # An exact time loses half a tick where it is rounded to ticks; programs round more coarsely.
    slack = max(0.5, unit / 500)
    quarters: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    starts = ticks.tolist()
    for tick in times:
        bar = min(bisect_right(starts, tick), len(bars)) - 1
        quarter, rest = divmod(tick - starts[bar], unit)
        quarters[bar, quarter][tick] = rest
    placed = {}
    for (bar, quarter), inside in quarters.items():
        errors = {
            grid: max(
                abs(round(grid * rest / unit) / grid * unit - rest) for rest in inside.values()
            )
            for grid in EXACT
        }
        coarse = min(COARSE, key=errors.__getitem__)
        grid = next((grid for grid, error in errors.items() if error <= slack), coarse)
        for tick, rest in inside.items():
            after = quarter + Fraction(round(grid * rest / unit), grid)
            placed[tick] = bars[bar].start + min(after, bars[bar].length)
    return placed


def full_release(onset: int, release: int, onsets: Sequence[int], unit: int) -> int:
    """Return where a note ends on paper, of which programs play nine tenths or more.

    onsets: of its part, sorted. A release off the COARSE grids moves by at most a ninth of the
    duration, to the next onset, else to the simplest note value.
    """
    if any(release * grid % unit == 0 for grid in COARSE):
        return release
    latest = release + (release - onset) // 9
    following = onsets[bisect_left(onsets, release) :][:1]
    values = ((-((onset - release) * n // unit), n) for n in (1, 2, 4, 3, 8, 6))
    ends = (onset + count * unit // n for count, n in values)
    return next((end for end in (*following, *ends) if end <= latest), release)


def two_staves(chords: list[Chord]) -> list[list[Chord]]:
    """Return the chords from middle C on, and those below it."""
    staves = []
    for is_low in (False, True):
        own = [[n for n in chord.notes if (n.pitch < MIDDLE_C) == is_low] for chord in chords]
        pairs = zip(chords, own, strict=True)
        staves.append([chord._replace(notes=notes) for chord, notes in pairs if notes])
    return staves


def voices_of(chords: list[Chord]) -> list[list[Chord]]:
    """Return voices of chords that do not overlap, but in the last of MAX_VOICES."""
    voices: list[list[Chord]] = [[]]
    for chord in chords:
        free = (own for own in voices if not own or own[-1].release <= chord.onset)
        voice = next(free, None)
        if voice is None and len(voices) < MAX_VOICES:
            voices.append(voice := [])
        (voices[-1] if voice is None else voice).append(chord)
    return voices


def by_bar(voice: list[Chord], bars: list[Bar]) -> list[list[Chord]]:
    """Return the chords of a voice that sound in each bar."""
    inside: list[list[Chord]] = [[] for _ in bars]
    starts = [bar.start for bar in bars]
    for chord in voice:
        first, last = bisect_right(starts, chord.onset) - 1, bisect_left(starts, chord.release)
        for own in inside[first:last]:
            own.append(chord)
    return inside


def segments(chords: Sequence[Chord], start: Fraction, stop: Fraction) -> list[Value]:
    """Return what sounds in a measure of a voice, from one onset or release to the next."""
    cuts = {start, stop, *(min(max(t, start), stop) for chord in chords for t in chord[:2])}
    return [
        Value(a, b, [chord for chord in chords if chord.onset <= a and chord.release >= b])
        for a, b in pairwise(sorted(cuts))
    ]


def divide(values: Sequence[Value], span: Span) -> list[Value]:
    """Return the values of a span cut into such as can be written, in tuplets where it has to be.

    A value is cut at the beats that it crosses, but for usual ones such as a half note on the
    second of four quarters.
    """
    values = [replace(value, ratio=span.ratio) for value in values]
    covered = len(values) == 1 and (values[0].start, values[0].stop) == (span.start, span.stop)
    if (covered and values[0].written in WRITTEN) or span.unit < min(NOTE_TYPES):
        return values
    cuts = {time for value in values for time in (value.start, value.stop)}
    parts = span.parts()
    # A meter of less than a tick has bars that are longer than it says.
    edges = [*(part.start for part in parts), max(span.stop, values[-1].stop)]
    is_regular = span.count & (span.count - 1) == 0 and span.ratio == (1, 1)
    needs_tuplet = is_regular and not span.is_plain(cuts) and not cuts & {*edges[1:-1]}
    if needs_tuplet and (tuplet := span.tuplet(cuts)) is not None:
        inside = divide(values, tuplet)
        if len(inside) > 1:  # not in a bar that is cut short
            inside[0] = replace(inside[0], bracket="start")
            inside[-1] = replace(inside[-1], bracket="stop")
        return inside
    written: list[Value] = []
    parts_of: list[list[Value]] = [[] for _ in parts]
    for value in values:
        start = value.start
        while start < value.stop:
            place = max(n for n, part in enumerate(parts) if part.start <= start)
            within = min(value.stop, edges[place + 1])
            stops = [value.stop, *(edge for edge in edges[::-1] if within < edge < value.stop)]
            pieces = (replace(value, start=start, stop=stop) for stop in stops if stop > within)
            piece = next((one for one in pieces if _may_cross(one, parts, edges, cuts)), None)
            if piece is None:
                piece = replace(value, start=start, stop=within)
                parts_of[place].append(piece)
            else:
                written.append(piece)
            start = piece.stop
    for part, own in zip(parts, parts_of, strict=True):
        written += divide(own, part) if own else []
    return sorted(written, key=lambda value: value.start)


def _may_cross(value: Value, parts: list[Span], edges: list[Fraction], cuts: set[Fraction]) -> bool:
    """Whether a value that is longer than one part of a span is written as one note."""
    crossed = [part for part in parts if part.start < value.stop and part.stop > value.start]
    if value.written not in WRITTEN or not all(part.is_plain(cuts) for part in crossed):
        return False
    if value.start in edges and value.stop in edges:
        return True
    # As in eighth, quarter, eighth; halves of a part in three would hide its beats.
    half = (parts[0].stop - parts[0].start) / 2
    offsets = [(time - parts[0].start) / half for time in (value.start, value.stop)]
    is_even = parts[0].count == 1 or parts[0].count % 2 == 0
    is_on_halves = all(offset.denominator == 1 for offset in offsets)
    return bool(value.chords) and len(crossed) == 2 and is_even and is_on_halves
