"""Notes of a piece of music as pages show and play them, and their statistics."""

from __future__ import annotations

from dataclasses import dataclass


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
        rows = [
            ("notes", f"{len(notes):,}"),
            ("duration", f"{self.seconds:.1f} s"),
            ("notes per second", f"{len(notes) / self.seconds:.2f}"),
            ("mean number of sounding notes", f"{sounding / self.seconds:.2f}"),
        ]
        if pitched:
            rows.append(("pitches", f"{pitch_name(min(pitched))} to {pitch_name(max(pitched))}"))
            rows.append(("different pitches", str(len(set(pitched)))))
        return rows


def pitch_name(pitch: int) -> str:
    """Return the name of a MIDI pitch; 60 is C4."""
    names = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")
    return f"{names[pitch % 12]}{pitch // 12 - 1}"
