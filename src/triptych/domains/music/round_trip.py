"""What a tokenizer of several instruments loses: notes before encoding and after decoding."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from triptych.domains.music.midi import ParsedMidi, midi_bytes, parse_midi
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.instruments import DRUMS

MAX_SHIFT = 1 / 8
"""Largest change of an onset at which a note counts as kept, in quarters: beyond half a position of
every meter."""
EQUAL = 1e-3
"""Largest difference of times that count as equal, in quarters."""

_Key = tuple[int, int]  # program, DRUMS for drums, and pitch


@dataclass(frozen=True)
class RoundTrip:
    """Notes of a piece before and after; times in quarters."""

    notes: int
    """Notes before."""
    kept: int
    """Notes that come back with program and pitch, at most MAX_SHIFT away."""
    added: int
    """Notes that come back and were not there."""
    moved: int
    """Kept notes with another onset."""
    resized: int
    """Kept notes with another duration."""
    onset_error: float
    """Sum of the absolute changes of the kept notes' onsets."""
    largest_onset_error: float
    duration_error: float
    """Sum of the absolute changes of the kept notes' durations."""

    @classmethod
    def sum(cls, trips: list[RoundTrip]) -> RoundTrip:
        """Return the round trip of all pieces together."""
        names = ("notes", "kept", "added", "moved", "resized", "onset_error", "duration_error")
        totals = {name: sum(getattr(trip, name) for trip in trips) for name in names}
        largest = max((trip.largest_onset_error for trip in trips), default=0.0)
        return cls(**totals, largest_onset_error=largest)


def round_trip(tokenizer: MusicTokenizer, midi: ParsedMidi) -> RoundTrip:
    """Encode a piece, decode it, write it as a MIDI file, read that, and compare the notes.

    Raises UserError where the piece has no notes of the tokenizer's instruments.
    """
    ids = tokenizer.encode(tokenizer.from_midi(midi))
    again = parse_midi(midi_bytes(tokenizer.to_midi(ids)), name=f"{midi.name} (decoded)")
    before, after = _spans(midi), _spans(again)
    pairs = [
        pair
        for key, spans in before.items()
        for pair in _match(sorted(spans), sorted(after.get(key, [])))
    ]
    shifts = [abs(old[0] - new[0]) for old, new in pairs]
    changes = [abs((old[1] - old[0]) - (new[1] - new[0])) for old, new in pairs]
    return RoundTrip(
        notes=sum(map(len, before.values())),
        kept=len(pairs),
        added=sum(map(len, after.values())) - len(pairs),
        moved=sum(shift > EQUAL for shift in shifts),
        resized=sum(change > EQUAL for change in changes),
        onset_error=sum(shifts),
        largest_onset_error=max(shifts, default=0.0),
        duration_error=sum(changes),
    )


def _spans(midi: ParsedMidi) -> dict[_Key, list[tuple[float, float]]]:
    """Return onset and release in quarters of all notes by program and pitch."""
    spans: dict[_Key, list[tuple[float, float]]] = defaultdict(list)
    for part in midi.parts:
        for note in part.notes:
            key = DRUMS if part.is_drum else note.program, note.pitch
            span = note.onset / midi.ticks_per_quarter, note.release / midi.ticks_per_quarter
            spans[key].append(span)
    return spans


def _match(
    before: list[tuple[float, float]], after: list[tuple[float, float]]
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Pair notes of one program and pitch in the order of their onsets."""
    pairs, place = [], 0
    for span in before:
        while place < len(after) and after[place][0] < span[0] - MAX_SHIFT:
            place += 1
        if place < len(after) and after[place][0] <= span[0] + MAX_SHIFT:
            pairs.append((span, after[place]))
            place += 1
    return pairs
