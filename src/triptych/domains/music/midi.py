"""MIDI files in and out, so that no file can crash, hang or mislead the reader.

`pretty_midi` turns ticks into seconds through the tempo map; the raw messages are put in order for
it first, see tracks.py.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import mido
import pretty_midi

from triptych.domains.music.tracks import normalise
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
        normalise(raw)
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
