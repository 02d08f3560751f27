"""The frame of a given file in what is made for it, and what is new in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.chords import CHORDS, chord_index, transposed
from triptych.domains.music.midi import midi_bytes
from triptych.domains.music.midi_events import CONTROL, PROGRAM
from triptych.domains.music.notes import DRUMS, FRAME, Ids, Notes, Part, Score
from triptych.errors import UserError
from triptych.files.results import write_atomically


@dataclass(frozen=True)
class Made:
    """A piece that was made for a given one, or from nothing."""

    score: Score
    is_new: NDArray[np.bool_]
    """Of each note, bool [N]."""

    @classmethod
    def of(cls, score: Score) -> Made:
        """Return a piece without given notes."""
        return cls(score, np.ones(len(score.notes), dtype=bool))

    def only_new(self) -> Made:
        """Return the new notes alone, with the parts that play them."""
        return Made.of(without_rests(replace(self.score, notes=self.score.notes[self.is_new])))

    @property
    def kept(self) -> list[NDArray[np.bool_]]:
        """For each part which of its notes were given, bool [N]."""
        parts = range(len(self.score.parts))
        return [~self.is_new[self.score.notes.part == number] for number in parts]

    @property
    def midi(self) -> bytes:
        """Content of its MIDI file."""
        return midi_bytes(self.score)

    def write(self, path: str | Path) -> Path:
        """Write a MIDI file; raises UserError where it cannot be written."""
        return write_atomically(path, self.midi)


def without_rests(score: Score) -> Score:
    """Return a score without the parts that have no notes."""
    playing = np.unique(score.notes.part)
    parts = [score.parts[number] for number in playing.tolist()]
    part = np.searchsorted(playing, score.notes.part)
    return replace(score, parts=parts, notes=replace(score.notes, part=part))


def cut(score: Score, end: int) -> Score:
    """Return a score up to a tick; notes that last longer end there."""
    notes = score.notes[score.notes.onset < end]
    notes = replace(notes, release=np.minimum(notes.release, end))
    frame: dict[str, Any] = {
        name: [change for change in getattr(score, name) if change[0] < end] for name in FRAME
    }
    parts = [part.up_to(end) for part in score.parts]
    end = min(end, score.last_tick)
    return replace(score, parts=parts, notes=notes, last_tick=end, **frame)


def transpose(score: Score, semitones: int) -> Score:
    """Return a score with all notes but drums, key signatures and chord symbols moved."""
    notes = score.notes
    pitch = np.where(notes.program == DRUMS, notes.pitch, notes.pitch + semitones)
    if len(pitch) and not 0 <= pitch.min() <= pitch.max() <= 127:
        raise UserError(
            f"{score.name} has pitches from {notes.pitched.pitch.min()} to "
            f"{notes.pitched.pitch.max()}; transposed by {semitones} some are no MIDI pitches"
        )
    keys, chords = score.key_signatures, score.chords
    if semitones % 12:
        fifths = 7 * semitones
        keys = [(at, (sharps + fifths + 5) % 12 - 5, minor) for at, sharps, minor in keys]
        known = [(at, name, chord_index(name)) for at, name in chords]
        chords = [
            (at, name if index is None else CHORDS[transposed(index, semitones)])
            for at, name, index in known
        ]
    moved = replace(notes, pitch=pitch)
    return replace(score, notes=moved, key_signatures=keys, chords=chords)


def octaves_into(low: int, high: int, lowest: int, highest: int) -> int:
    """Return the shortest way of pitches low to high by octaves into a range, in semitones.

    0 where none fits.
    """
    ways = sorted(range(-120, 121, 12), key=abs)
    fits = (way for way in ways if lowest <= low + way and high + way <= highest)
    return next(fits, 0)


def continued(given: Score, new: Score, end: int) -> Score:
    """Return a given piece with what a new one says of tempos, meters, keys and chords after `end`.

    end: tick of the new piece, whose times are quarters as those of the given one.
    """
    later: dict[str, Any] = {
        name: [row for row in getattr(new, name) if row[0] >= max(1, end)] for name in FRAME
    }
    new = replace(new, **later).at_resolution(given.ticks_per_quarter)
    both: dict[str, Any] = {name: [*getattr(given, name), *getattr(new, name)] for name in FRAME}
    return replace(given, **both)


def put_into(
    given: Score,
    kept: NDArray[np.bool_],
    new: Score,
    owners: dict[str, int],
    *,
    by_seconds: bool = False,
    order: Sequence[str] = (),
) -> Made:
    """Return kept notes of a given piece and the notes of a new one, in the frame of the given.

    kept: of the given notes, bool [N]. owners: by name of a part of the new piece the given part
    that plays it; other parts are added. by_seconds: whether the times of the new piece are those
    of a clock; otherwise both count quarters. order: names of new parts that stand in this order.
    """
    notes = new.at_resolution(given.ticks_per_quarter).notes
    if by_seconds:
        notes = new.notes_in_seconds.with_times(given.ticks)
    parts = list(given.parts)
    numbers = []
    for part in new.parts:
        number = owners.get(part.name)
        if number is None:
            number = len(parts)
            parts.append(part)
        elif not parts[number].name:
            parts[number] = replace(parts[number], name=part.name)
        numbers.append(number)
    programs = dict(given.notes.rows("part", "program"))
    player = np.array([*numbers, 0], dtype=np.int64)[notes.part]
    own = [
        programs.get(part, row)
        for part, row in zip(player.tolist(), notes.program.tolist(), strict=True)
    ]
    notes = replace(notes, part=player, program=np.array(own, dtype=np.int64))
    notes = replace(notes, release=np.maximum(notes.release, notes.onset + 1))
    old = given.notes[kept]
    held: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for part, pitch, *span in old.rows("part", "pitch", "onset", "release"):
        held[part, pitch].append((span[0], span[1]))
    # One key cannot be struck again while it is held: a kept note would end there.
    free = [
        not any(start <= onset < stop for start, stop in held[part, pitch])
        for part, pitch, onset in notes.rows("part", "pitch", "onset")
    ]
    notes = notes[np.array(free, dtype=bool)]
    every = joined(old, notes)
    is_new = np.repeat([False, True], [len(old), len(notes)])
    if order:  # such as voices, from the highest
        names = [*owners.items(), *zip((part.name for part in new.parts), numbers, strict=True)]
        places = [
            min((order.index(n) for n, own in names if own == number and n in order), default=99)
            for number in range(len(parts))
        ]
        rank = np.argsort(places, kind="stable")
        parts = [parts[number] for number in rank.tolist()]
        every = replace(every, part=np.argsort(rank)[every.part])
    rows = np.lexsort((every.pitch, every.release, every.onset, every.part))
    end = max(given.last_tick if kept.any() else 0, int(every.release.max(initial=0)))
    parts = [
        _without_bends(part.up_to(end), every[is_new & (every.part == number)])
        for number, part in enumerate(parts)
    ]
    score = replace(given, parts=parts, notes=every[rows], last_tick=end)
    return Made(without_rests(score) if len(rows) else score, is_new[rows])


def _without_bends(part: Part, notes: Notes) -> Part:
    """Return a part without the bends and pressures that a file has for what notes replace."""
    notes = notes.sorted("onset")
    until = np.append(-1, np.maximum.accumulate(notes.release))  # of all notes so far
    ticks = np.array([tick for tick, _ in part.messages], dtype=np.int64)
    covered = ticks < until[np.searchsorted(notes.onset, ticks, side="right")]
    pairs = zip(part.messages, covered.tolist(), strict=True)
    kept = [row for row, is_new in pairs if row[1][0] in (CONTROL, PROGRAM) or not is_new]
    return replace(part, messages=kept)


def joined(first: Notes, second: Notes) -> Notes:
    """Return the notes of two tables, those of the first one before those of the second."""
    columns = (field.name for field in fields(Notes))
    return Notes(*(np.append(getattr(first, name), getattr(second, name)) for name in columns))


def chosen_cells(
    bars: Ids, names: Sequence[str], keep: str | None, fill: str | None, name: str
) -> NDArray[np.bool_]:
    """Return which parts of which bars are made anew, bool [bars, names].

    bars: of `Score.bars`. names: of parts or voices. keep names what is kept: bars, parts, or both,
    as soprano,bars:1-4 or track:Piano; fill names what is made anew: parts, bars, or parts in bars,
    as bars:5-8,track:Drums. name: of the piece. Raises UserError for bars and parts that it lacks,
    and where nothing is left to make. Without both all is made anew.
    """
    n_bars = len(bars) - 1
    if keep is fill is None:
        return np.ones((n_bars, len(names)), dtype=bool)
    option, text = ("fill", fill) if fill is not None else ("keep", keep or "")
    in_bars, in_parts = np.zeros(n_bars, dtype=bool), np.zeros(len(names), dtype=bool)
    lower = [part.lower() for part in names]
    for word in (word.strip() for word in text.split(",")):
        if span := re.fullmatch(r"bars:(\d+)(?:-(\d+))?", word.lower()):
            first, last = int(span[1]), int(span[2] or span[1])
            if not 1 <= first <= last <= n_bars:
                raise UserError(
                    f"{option} names {word!r}; expected bars from 1 to {n_bars}, those of {name}"
                )
            in_bars[first - 1 : last] = True
            continue
        track = word.lower().removeprefix("track:").strip()
        if track.isdigit() and 1 <= int(track) <= len(names):
            in_parts[int(track) - 1] = True
        elif track in lower:
            in_parts[[part == track for part in lower]] = True
        else:
            raise UserError(
                f"{option} names {word!r}; expected {', '.join(lower[:16])}"
                f"{', ...' * (len(lower) > 16)}, or bars such as bars:1-4"
            )
    if fill is None:
        new = ~(in_bars[:, None] | in_parts)
    else:
        new = (in_bars | ~in_bars.any())[:, None] & (in_parts | ~in_parts.any())
    if not new.any():
        raise UserError(f"{option} is {text!r}: nothing of {name} is left to sample")
    return new
