"""MIDI files in and out, so that no file can crash, hang or mislead the reader.

`pretty_midi` turns ticks into seconds through the tempo map. Three things it does not do are done
here, on the raw messages, before it sees them: notes that are never released are closed at the end
of the piece (it drops them), overlapping notes of one pitch are paired with their own releases (it
lets one release close all), and notes of zero length get one tick (it drops them).
"""

from __future__ import annotations

import io
import warnings
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import mido
import pretty_midi

from triptych.errors import UserError
from triptych.training.files import write_whole

MAX_BYTES = 2_000_000
"""Largest file that is opened (bytes): the longest of MAESTRO's performances has a tenth of it."""

MAX_SECONDS = 7200.0
"""Latest end of a piece (seconds): damaged files claim weeks and would fill the memory."""

RESOLUTION = 500
"""Ticks per quarter note of what we write: at 120 bpm one tick is 1 ms.

The usual 220 ticks are 2.27 ms each, and 10 ms would no longer come back as 10 ms.
"""

MIDI_SUFFIXES = (".mid", ".midi")


class _Sounding(NamedTuple):
    """One key held down: ticks of its press and release, and its velocity."""

    onset: int
    release: int
    velocity: int


def new_midi(tempo: float = 120.0) -> pretty_midi.PrettyMIDI:
    """Give an empty piece on the fine grid; tempo in quarter notes a minute."""
    return pretty_midi.PrettyMIDI(resolution=RESOLUTION, initial_tempo=tempo)


def read_midi(path: str | Path) -> pretty_midi.PrettyMIDI:
    """Read a MIDI file; UserError with its name for whatever is wrong with it."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; expected a MIDI file (.mid or .midi).")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(_too_large(str(path), size))
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    return parse_midi(content, name=str(path))


def parse_midi(content: bytes, *, name: str) -> pretty_midi.PrettyMIDI:
    """Turn the bytes of a MIDI file into notes in seconds.

    name: what the messages call the file. Raises UserError for an empty, oversized, damaged or
    silent file and for one that ends after MAX_SECONDS.
    """
    if not content:
        raise UserError(f"{name} is empty; expected a MIDI file.")
    if len(content) > MAX_BYTES:
        raise UserError(_too_large(name, len(content)))
    # Damaged files raise at least seven unrelated exception types inside mido and pretty_midi.
    try:
        raw = mido.MidiFile(file=io.BytesIO(content), charset="latin1")
        end = _end_seconds(raw)
        if end > MAX_SECONDS:
            raise UserError(
                f"{name} claims to last {end:,.0f} s; at most {MAX_SECONDS:,.0f} s are read."
            )
        _normalise(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tempo events outside track 0: moved there above
            midi = pretty_midi.PrettyMIDI(mido_object=raw)
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(". :")
        raise UserError(f"{name} is not a MIDI file that can be read ({reason}).") from error
    if not any(instrument.notes for instrument in midi.instruments):
        raise UserError(f"{name} holds no notes.")
    return midi


def midi_bytes(midi: pretty_midi.PrettyMIDI) -> bytes:
    """Give the file as bytes; it has a tempo event, so that every player agrees on its speed."""
    buffer = io.BytesIO()
    midi.write(buffer)
    return buffer.getvalue()


def write_midi(midi: pretty_midi.PrettyMIDI, path: str | Path) -> Path:
    """Write a MIDI file, see `write_whole`."""
    return write_whole(path, midi_bytes(midi))


def _too_large(name: str, size: int) -> str:
    return f"{name} has {size:,} bytes; MIDI files of at most {MAX_BYTES:,} bytes are read."


def _end_seconds(raw: mido.MidiFile) -> float:
    """Time of the last message by the tempo map (seconds), end-of-track marks apart."""
    if raw.ticks_per_beat <= 0:
        raise ValueError(f"a time division of {raw.ticks_per_beat} ticks per quarter note")
    tempos = []
    last_tick = 0
    for track in raw.tracks:
        tick = 0
        for message in track:
            tick += message.time
            if message.type == "set_tempo":
                tempos.append((tick, message.tempo))
            if message.type != "end_of_track":
                last_tick = max(last_tick, tick)
    seconds, tick, tempo = 0.0, 0, 500_000  # MIDI's default: 120 quarters a minute
    for change, microseconds in [*sorted(tempos, key=lambda pair: pair[0]), (last_tick, tempo)]:
        seconds += (min(change, last_tick) - tick) * tempo / 1e6 / raw.ticks_per_beat
        tick, tempo = min(change, last_tick), microseconds
    return seconds


def _normalise(raw: mido.MidiFile) -> None:
    """Rewrite the tracks in place: notes of one pitch apart, all tempo events in track 0."""
    tracks = [_absolute(track) for track in raw.tracks]
    last_tick = max(
        (tick for track in tracks for tick, message in track if message.type != "end_of_track"),
        default=0,
    )
    tempos = [
        (tick, message)
        for track in tracks
        for tick, message in track
        if message.type == "set_tempo"
    ]
    for number, track in enumerate(tracks):
        notes, others = _split_notes(track, last_tick)
        others = [event for event in others if event[1].type != "set_tempo"]
        if number == 0:
            others = sorted([*tempos, *others], key=lambda event: event[0])
        # Releases first and onsets last inside one tick: a repeated key stays two notes, and a
        # program change counts for the notes that start with it.
        ordered = sorted(
            # An end-of-track mark hours after the last message must not cost memory.
            [(min(tick, last_tick + 1), 1, message) for tick, message in others] + notes,
            key=lambda event: event[:2],
        )
        raw.tracks[number] = _relative(ordered)


def _absolute(track: mido.MidiTrack) -> list[tuple[int, mido.Message]]:
    tick = 0
    events = []
    for message in track:
        tick += message.time
        events.append((tick, message))
    return events


def _relative(events: list[tuple[int, int, mido.Message]]) -> mido.MidiTrack:
    track = mido.MidiTrack()
    previous = 0
    for tick, _, message in events:
        message.time = tick - previous  # each message stands in one place only
        track.append(message)
        previous = tick
    return track


def _split_notes(
    track: list[tuple[int, mido.Message]], last_tick: int
) -> tuple[list[tuple[int, int, mido.Message]], list[tuple[int, mido.Message]]]:
    """Separate the notes, paired anew and never overlapping, from all other messages."""
    keys: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    others = []
    for tick, message in track:
        if message.type == "note_on":
            # A note-on with velocity 0 is a release.
            keys[message.channel, message.note].append((tick, message.velocity))
        elif message.type == "note_off":
            keys[message.channel, message.note].append((tick, 0))
        else:
            others.append((tick, message))
    notes = []
    for (channel, pitch), presses in keys.items():
        for onset, release, velocity in _pair(presses, last_tick):
            # Unchecked, which halves the time of reading: the values come from checked messages.
            key = {"channel": channel, "note": pitch, "skip_checks": True}
            on = mido.Message("note_on", velocity=velocity, **key)
            off = mido.Message("note_off", **key)
            notes += [(onset, 2, on), (release, 0, off)]
    return notes, others


def _pair(presses: list[tuple[int, int]], last_tick: int) -> list[_Sounding]:
    """Pair the presses (velocity > 0) and releases (velocity 0) of one key, given in file order.

    As many releases as presses: the first release belongs to the first press, as two voices on one
    key are written. Otherwise some releases are missing, and each belongs to the latest press, so
    that one lost release damages one note only. What stays open ends with the piece. A note ends at
    the latest where the key is pressed again; two presses in one tick are one note, the louder.
    """
    balanced = 2 * sum(velocity > 0 for _, velocity in presses) == len(presses)
    held: list[tuple[int, int]] = []
    notes = []
    for tick, velocity in presses:
        if velocity > 0:
            held.append((tick, velocity))
        elif held:  # a release without a press says nothing
            onset, loudness = held.pop(0 if balanced else -1)
            notes.append(_Sounding(onset, tick, loudness))
    notes += [_Sounding(onset, last_tick, velocity) for onset, velocity in held]
    notes.sort()
    apart: list[_Sounding] = []
    for note in notes:
        release = max(note.release, note.onset + 1)
        if apart and apart[-1].onset == note.onset:
            last = apart.pop()
            note = _Sounding(note.onset, note.release, max(last.velocity, note.velocity))
            release = max(last.release, release)
        elif apart and apart[-1].release > note.onset:
            apart[-1] = apart[-1]._replace(release=note.onset)
        apart.append(note._replace(release=release))
    return apart
