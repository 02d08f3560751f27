"""Notes of a piece of music from its MIDI file, and their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from triptych.domains.music.midi import ParsedMidi, parse_midi, read_midi


@dataclass(frozen=True)
class PlayedNote:
    """One note; times in seconds."""

    start: float
    duration: float
    pitch: int
    velocity: int


@dataclass(frozen=True)
class PlayedPart:
    """Notes of one part of a piece."""

    name: str
    is_drum: bool
    notes: list[PlayedNote]


@dataclass(frozen=True)
class Piece:
    """Piece of music from a MIDI file."""

    name: str
    parts: list[PlayedPart]
    seconds: float
    """End of the last note."""
    midi: bytes
    """Content of the file."""

    def statistics(self) -> list[tuple[str, str]]:
        """Return statistics of the notes as (name, value with its unit)."""
        notes = [note for part in self.parts for note in part.notes]
        pitched = [note.pitch for part in self.parts if not part.is_drum for note in part.notes]
        sounding = sum(note.duration for note in notes)
        found = [
            ("notes", f"{len(notes):,}"),
            ("duration", f"{self.seconds:.1f} s"),
            ("notes per second", f"{len(notes) / self.seconds:.2f}"),
            ("mean number of sounding notes", f"{sounding / self.seconds:.2f}"),
        ]
        if pitched:
            found.append(("pitches", f"{pitch_name(min(pitched))} to {pitch_name(max(pitched))}"))
            found.append(("different pitches", str(len(set(pitched)))))
        return found


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


def pitch_name(pitch: int) -> str:
    """Return the name of a MIDI pitch; 60 is C4."""
    names = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")
    return f"{names[pitch % 12]}{pitch // 12 - 1}"
