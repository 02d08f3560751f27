"""MIDI files as pieces that pages show and play."""

from __future__ import annotations

from pathlib import Path

from triptych.domains.music.midi import ParsedMidi, parse_midi, read_midi
from triptych.domains.played_pieces import Piece, PlayedNote, PlayedPart


def read_piece(path: Path) -> Piece:
    """Read a MIDI file; raises UserError for one that is damaged or has no notes."""
    return _piece(read_midi(path), path.stem, path.read_bytes())


def parse_piece(content: bytes, name: str) -> Piece:
    """Return the piece of the content of a MIDI file; raises UserError as `read_piece`."""
    return _piece(parse_midi(content, name=name), name, content)


def _piece(parsed: ParsedMidi, name: str, content: bytes) -> Piece:
    parts = []
    for number, part in enumerate(parsed.parts):
        starts = parsed.seconds([note.onset for note in part.notes])
        ends = parsed.seconds([note.release for note in part.notes])
        notes = [
            PlayedNote(float(start), float(end - start), note.pitch, note.velocity)
            for note, start, end in zip(part.notes, starts, ends, strict=True)
        ]
        label = part.name or ("drums" if part.is_drum else f"part {number + 1}")
        parts.append(PlayedPart(label, part.is_drum, notes))
    # A note of zero length at 0 s would divide by 0.
    end = max(note.start + note.duration for part in parts for note in part.notes)
    return Piece(name, parts, max(end, 0.1), content)
