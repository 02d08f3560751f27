"""What the page of a music model shows: harmonisations, continuations and new pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.domains.music.inference import MusicModel
from triptych.domains.music.midi import ParsedMidi, midi_bytes, new_midi, parse_midi
from triptych.domains.music.played import parse_piece
from triptych.errors import UserError
from triptych.files.piano_roll import Piece
from triptych.tools.play.limits import sampling, within
from triptych.types import Progress

if TYPE_CHECKING:
    import pretty_midi

QUARTERS_PER_MINUTE = 75.0
"""Tempo of a melody from the keyboard of the page."""
STEP_SECONDS = 60 / QUARTERS_PER_MINUTE / 4
"""Duration of a sixteenth."""
MAX_STEPS = 256
"""Longest melody from the keyboard, in sixteenths."""
MAX_BYTES = 200_000
"""Largest MIDI file, in bytes."""
MAX_SECONDS = 120.0
"""Longest MIDI file, and most new music, in seconds."""
MAX_QUARTERS = 320
"""Longest MIDI file, in quarters: sampling takes time by them in chorales."""
MAX_PIECES = 4
MAX_PARTICLES = 64

HARMONISE, CONTINUE, ACCOMPANY, COMPOSE = "Harmonise", "Continue", "Accompany", "New piece"


def actions(model: MusicModel) -> list[str]:
    """Return what a model can do, the most interesting first."""
    if model.settings.model.melody is not None:
        return [ACCOMPANY]
    return [*[HARMONISE] * bool(voices(model)), CONTINUE, COMPOSE]


def voices(model: MusicModel) -> list[str]:
    """Return the names of the voices that can be kept; empty for music without voices."""
    return [name.lower() for name in model.tokenizer.voice_ranges]


def given_music(model: MusicModel, notes: str, upload: str | None) -> ParsedMidi:
    """Return the music that a visitor gives: the MIDI file where there is one, or the melody.

    model: its melodies are of an instrument that it plays. notes: see `read_melody`. upload: path
    of the file. Raises UserError for a file that is damaged or larger than the limits, and where no
    note is given.
    """
    if upload is None:
        melody = read_melody(notes, model.tokenizer.melody_program)
        return parse_midi(midi_bytes(melody), name="The melody")
    path = Path(upload)
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise UserError(f"{path.name} has {size:,} bytes; expected at most {MAX_BYTES:,}")
    parsed = parse_midi(path.read_bytes(), name=path.name)
    seconds = float(parsed.seconds([parsed.last_tick])[0])
    quarters = parsed.last_tick / parsed.ticks_per_quarter
    if seconds > MAX_SECONDS or quarters > MAX_QUARTERS:
        raise UserError(
            f"{path.name} lasts {seconds:.0f} seconds and {quarters:.0f} quarters; expected at "
            f"most {MAX_SECONDS:.0f} seconds and {MAX_QUARTERS} quarters"
        )
    return parsed


def read_melody(notes: str, program: int = 0) -> pretty_midi.PrettyMIDI:
    """Return the melody of the page's keyboard.

    notes: JSON, a list of [start, length, pitch] in sixteenths and MIDI pitches. program: of
    General MIDI. Raises UserError where there are none and for a melody that is damaged or too
    long.
    """
    import pretty_midi

    try:
        rows = json.loads(notes)
        wrong = not all(
            len(row) == 3
            and all(type(value) is int for value in row)
            and 0 <= row[0] < row[0] + row[1] <= MAX_STEPS
            and 0 <= row[2] <= 127
            for row in rows
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError("The melody cannot be read; load the page again") from error
    if wrong:
        raise UserError(
            f"The melody has a note outside of {MAX_STEPS // 16} bars or of the MIDI pitches"
        )
    if not rows:
        raise UserError(
            "There are no notes yet: play some on the keyboard, press Example melody, or choose a "
            "MIDI file."
        )
    midi = new_midi(QUARTERS_PER_MINUTE)
    part = pretty_midi.Instrument(program, name="Melody")
    part.notes = [
        pretty_midi.Note(80, pitch, start * STEP_SECONDS, (start + length) * STEP_SECONDS)
        for start, length, pitch in sorted(rows)
    ]
    midi.instruments.append(part)
    return midi


def harmonise(
    model: MusicModel,
    notes: str,
    upload: str | None,
    keep: str,
    particles: Any,
    seed: Any,
    temperature: Any,
    count: Any,
    progress: Progress | None = None,
) -> list[Piece]:
    """Return pieces in which one voice is the given one and the model samples the others.

    Raises UserError for settings outside of the limits and for music that the model cannot read.
    """
    options = sampling(seed, temperature, count)
    within("Number of pieces", count, 1, MAX_PIECES)
    if options["temperature"] == 0:
        raise UserError("A harmony needs a temperature above 0")
    pieces = model.complete(
        given_music(model, notes, upload),
        keep,
        particles=within("Particles", particles, 1, MAX_PARTICLES),
        progress=progress,
        **options,
    )
    return _pieces(pieces, "Harmony", upload)


def continue_music(
    model: MusicModel,
    notes: str,
    upload: str | None,
    seconds: Any,
    seed: Any,
    temperature: Any,
    count: Any,
    progress: Progress | None = None,
) -> list[Piece]:
    """Return pieces that begin with the given music; errors as in `harmonise`."""
    primer = given_music(model, notes, upload)
    pieces = model.sample(
        **_new(seconds, seed, temperature, count), primer=primer, progress=progress
    )
    return _pieces(pieces, "Continuation", upload)


def accompany(
    model: MusicModel,
    notes: str,
    upload: str | None,
    seed: Any,
    temperature: Any,
    count: Any,
    progress: Progress | None = None,
) -> list[Piece]:
    """Return pieces to the given melody, for a model that reads one; errors as in `harmonise`."""
    options = sampling(seed, temperature, within("Number of pieces", count, 1, MAX_PIECES))
    pieces = model.sample(**options, melody=given_music(model, notes, upload), progress=progress)
    return _pieces(pieces, "Accompaniment", upload)


def compose(
    model: MusicModel,
    seconds: Any,
    seed: Any,
    temperature: Any,
    count: Any,
    progress: Progress | None = None,
) -> list[Piece]:
    """Return new pieces; errors as in `harmonise`."""
    pieces = model.sample(**_new(seconds, seed, temperature, count), progress=progress)
    return _pieces(pieces, "Piece")


def _new(seconds: Any, seed: Any, temperature: Any, count: Any) -> dict[str, Any]:
    within("Number of pieces", count, 1, MAX_PIECES)
    length = within("Seconds of new music", seconds, 1.0, MAX_SECONDS)
    return {**sampling(seed, temperature, count), "seconds": length}


def _pieces(
    made: Sequence[pretty_midi.PrettyMIDI], what: str, upload: str | None = None
) -> list[Piece]:
    given = "" if upload is None else f" of {Path(upload).stem}"
    return [
        parse_piece(midi_bytes(midi), f"{what} {number}{given}")
        for number, midi in enumerate(made, start=1)
    ]
