"""MIDI files: messages read by mido, notes made of them here, files written by pretty_midi.

Notes are made here because libraries lose some. pretty_midi drops notes without a release and notes
of zero length, ends all overlapping notes of a pitch at one release, and applies a sustain pedal to
its own track only. symusic drops notes without a release and has no channels.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import mido
import numpy as np
from numpy.typing import NDArray

from triptych.errors import UserError
from triptych.files.atomic import write_atomically

if TYPE_CHECKING:
    import pretty_midi

MAX_BYTES = 2_000_000
"""Largest file that is read, in bytes: ten times the longest performance of MAESTRO."""
MAX_SECONDS = 7200.0
"""Latest end of a piece, in seconds: damaged files claim weeks."""
MIDI_SUFFIXES = (".mid", ".midi")

TICKS_PER_QUARTER = 500
"""Resolution of the files that are written: at 120 quarters per minute a tick is 1 ms. With
pretty_midi's own 220 it is 2.27 ms, too coarse for a grid of 10 ms."""
DRUM_CHANNEL = 9
SUSTAIN_PEDAL = 64
"""Number of the pedal's control change."""
PEDAL_DOWN = 64
"""Smallest value of the control change at which the pedal is down."""
DEFAULT_TEMPO = 500_000
"""Microseconds per quarter note before the first tempo event."""


class Note(NamedTuple):
    """One note of a MIDI file; times in ticks."""

    onset: int
    release: int
    pitch: int
    velocity: int
    program: int = 0
    """General MIDI program, 0 to 127, in force at the onset; of no meaning for drums."""


@dataclass(frozen=True)
class Part:
    """Notes that one channel plays in one track."""

    name: str
    """Name of the track, or empty."""
    is_drum: bool
    notes: list[Note]
    """By onset and pitch; notes of one pitch do not overlap."""
    pedal: list[tuple[int, bool]]
    """(tick, pedal is down) of the sustain pedal's movements on the channel, in all tracks that
    share it, by tick."""


@dataclass(frozen=True)
class ParsedMidi:
    """Notes of a MIDI file with its tempo map."""

    name: str
    """Name of the file, for error messages."""
    parts: list[Part]
    """Parts with at least one note, by track and channel."""
    ticks_per_quarter: int
    last_tick: int
    """Tick of the last message, end-of-track marks excluded."""
    tempos: list[tuple[int, int]]
    """(tick, microseconds per quarter note) of all tempo events, by tick."""
    time_signatures: list[tuple[int, int, int]]
    """(tick, numerator, denominator) of all time signatures, by tick."""

    def seconds(self, ticks: Sequence[int]) -> NDArray[np.float64]:
        """Convert ticks to seconds by the tempo map."""
        at = np.asarray(ticks, dtype=np.float64)
        changes, tempos = np.array([(0, DEFAULT_TEMPO), *self.tempos], dtype=np.float64).T
        per_tick = tempos / 1e6 / self.ticks_per_quarter  # seconds
        starts = np.concatenate([[0.0], np.cumsum(np.diff(changes) * per_tick[:-1])])  # seconds
        section = np.searchsorted(changes, at, side="right") - 1
        seconds: NDArray[np.float64] = starts[section] + (at - changes[section]) * per_tick[section]
        return seconds


def read_midi(path: str | Path) -> ParsedMidi:
    """Read a MIDI file; raises UserError as `parse_midi` does, and for a file that is missing."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_midi(content, name=str(path))


def parse_midi(content: bytes, *, name: str) -> ParsedMidi:
    """Parse the bytes of a MIDI file.

    Raises UserError for a file that is empty, larger than
    MAX_BYTES, damaged or without notes, and for one that ends after MAX_SECONDS.
    """
    if not content:
        raise UserError(f"{name} is empty; expected a MIDI file")
    if len(content) > MAX_BYTES:
        raise UserError(f"{name} is too large: MIDI files of at most {MAX_BYTES:,} bytes are read")
    # Damaged files raise at least seven unrelated exception types inside mido.
    try:
        midi = _parse(name, mido.MidiFile(file=io.BytesIO(content), charset="latin1"))
        end = float(midi.seconds([midi.last_tick])[0])
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(". :")
        raise UserError(f"{name} is not a MIDI file that can be read ({reason})") from error
    if end > MAX_SECONDS:
        raise UserError(
            f"{name} claims to last {end:,.0f} s; at most {MAX_SECONDS:,.0f} s are read"
        )
    if not midi.parts:
        raise UserError(f"{name} holds no notes")
    return midi


def _parse(name: str, raw: mido.MidiFile) -> ParsedMidi:
    """Collect the notes of every track and channel, and the tempo events of all tracks."""
    if raw.ticks_per_beat <= 0:
        raise ValueError(f"a time division of {raw.ticks_per_beat} ticks per quarter note")
    # Messages of each key as (tick, velocity), velocity 0 for a release.
    keys: dict[tuple[int, int], dict[int, list[tuple[int, int]]]] = {}  # (track, channel), pitch
    pedals: dict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)  # (port, channel)
    # Of each (track, channel), and of each (port, channel) in all tracks: (tick, program).
    own_programs: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    programs: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    names, ports, tempos, meters = defaultdict(str), defaultdict(int), [], []
    last_tick = 0
    for number, track in enumerate(raw.tracks):
        # Files for more than 16 channels name a port in each track.
        ports[number] = next((m.port for m in track if m.type == "midi_port"), 0)
        tick = 0
        for message in track:
            tick += message.time
            kind = message.type
            if kind != "end_of_track":
                last_tick = max(last_tick, tick)
            if kind in ("note_on", "note_off"):
                key = keys.setdefault((number, message.channel), {}).setdefault(message.note, [])
                key.append((tick, message.velocity if kind == "note_on" else 0))
            elif kind == "control_change" and message.control == SUSTAIN_PEDAL:
                movement = (tick, message.value >= PEDAL_DOWN)
                pedals[ports[number], message.channel].append(movement)
            elif kind == "program_change":
                own_programs[number, message.channel].append((tick, message.program))
                programs[ports[number], message.channel].append((tick, message.program))
            elif kind == "set_tempo":
                tempos.append((tick, message.tempo))
            elif kind == "time_signature":
                meters.append((tick, message.numerator, message.denominator))
            elif kind == "track_name":
                names[number] = message.name
    for movements in pedals.values():
        movements.sort(key=lambda movement: movement[0])
    for changes in programs.values():
        changes.sort(key=lambda change: change[0])
    parts = []
    for (number, channel), by_pitch in sorted(keys.items()):
        notes = [
            note
            for pitch, messages in by_pitch.items()
            for note in _pair(messages, pitch, last_tick)
        ]
        if notes:
            pedal = pedals[ports[number], channel]
            # Files with more parts than channels set the program in every track.
            changes = own_programs[number, channel] or programs[ports[number], channel]
            notes = [note._replace(program=_program_at(note.onset, changes)) for note in notes]
            parts.append(Part(names[number], channel == DRUM_CHANNEL, sorted(notes), pedal))
    tempos.sort(key=lambda tempo: tempo[0])
    meters.sort(key=lambda meter: meter[0])
    return ParsedMidi(name, parts, raw.ticks_per_beat, last_tick, tempos, meters)


def _program_at(tick: int, changes: list[tuple[int, int]]) -> int:
    """Return the program in force at a tick; the first one before the first change, else 0."""
    latest = bisect_right(changes, tick, key=lambda change: change[0]) - 1
    return changes[max(0, latest)][1] if changes else 0


def _pair(messages: list[tuple[int, int]], pitch: int, last_tick: int) -> list[Note]:
    """Pair the presses and releases of one key, given as (tick, velocity) in file order.

    With as many releases as presses, the first release ends the first note, as two voices on one
    key are written. Otherwise a release is missing, and each release ends the latest note, so that
    one lost release damages one note only. Open notes end with the piece. A note ends at the latest
    at the next onset; two onsets in one tick are one note with the larger velocity. Every note
    lasts at least one tick.
    """
    balanced = 2 * sum(velocity > 0 for _, velocity in messages) == len(messages)
    open_notes: list[tuple[int, int]] = []  # (onset, velocity)
    paired: list[Note] = []
    for tick, velocity in messages:
        if velocity > 0:
            open_notes.append((tick, velocity))
        elif open_notes:  # a release without a press is ignored
            onset, loudness = open_notes.pop(0 if balanced else -1)
            paired.append(Note(onset, tick, pitch, loudness))
    paired += [Note(onset, last_tick, pitch, velocity) for onset, velocity in open_notes]
    notes: list[Note] = []
    for note in sorted(paired, key=lambda note: (note.onset, note.release)):
        velocity, release = note.velocity, max(note.release, note.onset + 1)
        if notes and notes[-1].onset == note.onset:
            same = notes.pop()
            velocity, release = max(velocity, same.velocity), max(release, same.release)
        elif notes and notes[-1].release > note.onset:
            notes[-1] = notes[-1]._replace(release=note.onset)
        notes.append(Note(note.onset, release, pitch, velocity))
    return notes


def new_midi(tempo: float = 120.0) -> pretty_midi.PrettyMIDI:
    """Return an empty piece to write; tempo in quarter notes per minute."""
    import pretty_midi

    return pretty_midi.PrettyMIDI(resolution=TICKS_PER_QUARTER, initial_tempo=tempo)


def midi_bytes(midi: pretty_midi.PrettyMIDI) -> bytes:
    """Return the content of a MIDI file. It holds a tempo event, so every player agrees on it."""
    buffer = io.BytesIO()
    midi.write(buffer)
    return buffer.getvalue()


def write_midi(midi: pretty_midi.PrettyMIDI, path: str | Path) -> Path:
    """Write a MIDI file; raises UserError where it cannot be written."""
    return write_atomically(path, midi_bytes(midi))
