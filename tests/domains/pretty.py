"""Music as pretty_midi has it: an independent reader and writer of MIDI files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pretty_midi

from triptych.domains.music import midi
from triptych.domains.music.frame import Made
from triptych.domains.music.notes import DRUMS, Notes, Score


def new_midi(
    parts: Sequence[pretty_midi.Instrument] = (), tempo: float = 120.0
) -> pretty_midi.PrettyMIDI:
    """A piece of some parts; at 120 quarters per minute a tick is 1 ms."""
    made = pretty_midi.PrettyMIDI(resolution=500, initial_tempo=tempo)
    made.instruments = [*parts]
    return made


def midi_bytes(music: pretty_midi.PrettyMIDI | Score) -> bytes:
    if isinstance(music, Score):
        return midi.midi_bytes(music)
    buffer = io.BytesIO()
    music.write(buffer)
    return buffer.getvalue()


def write_midi(music: pretty_midi.PrettyMIDI | Score, path: Path) -> Path:
    path.write_bytes(midi_bytes(music))
    return path


def pretty(music: Score | Made) -> pretty_midi.PrettyMIDI:
    score = music.score if isinstance(music, Made) else music
    return pretty_midi.PrettyMIDI(io.BytesIO(midi_bytes(score)))


def notes_of(music: pretty_midi.PrettyMIDI) -> Notes:
    """Notes in seconds, instrument by instrument."""
    return Notes.of(
        (note.pitch, note.start, note.end, note.velocity, number, program)
        for number, part in enumerate(music.instruments)
        for program in [DRUMS if part.is_drum else part.program]
        for note in part.notes
    )
