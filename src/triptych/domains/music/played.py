"""MIDI files as pieces that pages show and play."""

from __future__ import annotations

from pathlib import Path

from triptych.domains.music.midi import ParsedMidi, parse_midi, read_midi
from triptych.files.piano_roll import Piece


def read_piece(path: Path) -> Piece:
    """Read a MIDI file; raises UserError for one that is damaged or has no notes."""
    return _piece(read_midi(path), path.stem, path.read_bytes())


def parse_piece(content: bytes, name: str) -> Piece:
    """Return the piece of the content of a MIDI file; raises UserError as `read_piece`."""
    return _piece(parse_midi(content, name=name), name, content)


def _piece(parsed: ParsedMidi, name: str, content: bytes) -> Piece:
    import pretty_midi

    parts = []
    for part in parsed.parts:
        starts = parsed.seconds([note.onset for note in part.notes])
        ends = parsed.seconds([note.release for note in part.notes])
        instrument = pretty_midi.Instrument(0, part.is_drum, part.name)
        instrument.notes = [
            pretty_midi.Note(note.velocity, note.pitch, float(start), float(end))
            for note, start, end in zip(part.notes, starts, ends, strict=True)
        ]
        parts.append(instrument)
    return Piece(name, parts, content)
