"""What a user's folder of MIDI files holds: pieces, lengths and instruments."""

from __future__ import annotations

import hashlib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from triptych.domains.music.midi import MUSIC_SUFFIXES, parse_midi
from triptych.domains.music.notes import DRUMS
from triptych.domains.music.sources.midi_folder import (
    ARCHIVE_SUFFIXES,
    StoredFile,
    read_split_table,
    stored_files,
)
from triptych.domains.music.tokenizers.instruments import program_names
from triptych.domains.options import NewRunOptions
from triptych.errors import UserError
from triptych.files.splits import hash_position
from triptych.tools.new_run.data import (
    Description,
    ReadFiles,
    Setting,
    data_files,
    held_out,
    span,
)

SIZES = Path(__file__).with_suffix(".yaml")
KIND = "MIDI files"
LEAST = 4
"""Fewest pieces of which some can be trained on and others held out."""
TOKENS_PER_NOTE = {"own-midi": 4, "band-midi": 5}
"""Rough number of tokens of a note, by template."""
LONGEST_WINDOW = {"own-midi": 2048, "band-midi": 1024}
SHORTEST_WINDOW = 256
ORDER = ("test", "validation")
"""Of the held-out splits in `HashedSource`."""


class Looks(NamedTuple):
    """What one MIDI file holds."""

    place: float
    """That decides its split, see `hash_position`."""
    seconds: float
    n_notes: int
    n_parts: int
    programs: frozenset[int]
    """General MIDI programs; DRUMS for drums."""


def describe(options: NewRunOptions) -> Description:
    """Look at a folder of MIDI files.

    Raises UserError for a damaged csv of splits and as `data_files` does.
    """
    folder = Path(options.data).expanduser()
    data_files(folder, (*MUSIC_SUFFIXES, *ARCHIVE_SUFFIXES), KIND)
    with stored_files(folder, MUSIC_SUFFIXES) as files:
        looked = ReadFiles(_read, files, what="MIDI files looked at")
    looked.check(folder, least=LEAST, what=KIND)
    pieces = looked.found
    band, advice = _is_band(pieces)
    template = "band-midi" if band else "own-midi"
    tokens = [TOKENS_PER_NOTE[template] * piece.n_notes for piece in pieces]
    length = _window(tokens, LONGEST_WINDOW[template])
    splits = () if read_split_table(folder) else ORDER
    shares = held_out([piece.place for piece in pieces], splits, usual=0.1, what="pieces")
    notes = f"tokens of a window, about {length // TOKENS_PER_NOTE[template]} notes"
    return Description(
        template=template,
        sizes=SIZES,
        unit="notes",
        amount=sum(piece.n_notes for piece in pieces),
        items=sum(max(1.0, count / length) for count in tokens) * 0.8,
        settings={
            "data.source.directory": Setting(options.data),
            **{f"data.source.{name}": share for name, share in shares.items()},
            "data.sequence_length": Setting(length, notes),
            "data.overlap": Setting(length // 2),
        },
        facts=_facts(looked),
        advice=advice,
    )


def _read(file: StoredFile) -> Looks | str:
    """Return what a MIDI file holds, or as text why it cannot be used."""
    data = file.read()
    try:
        midi = parse_midi(data, name=file.name)
    except UserError as error:
        return str(error)
    return Looks(
        hash_position(hashlib.sha256(data).digest()),  # as MidiFolder splits
        midi.duration,
        len(midi.notes),
        len(midi.parts),
        frozenset(midi.notes.program.tolist()),
    )


def _is_band(pieces: list[Looks]) -> tuple[bool, list[str]]:
    """Return whether the music is of several instruments, and advice about the other reading."""
    several = sum(len(piece.programs) > 1 or DRUMS in piece.programs for piece in pieces)
    if several * 2 <= len(pieces):
        return False, []
    if find_spec("miditok") is None:
        return False, [
            "most pieces have several instruments, which are read as one piano, without drums: for "
            "a model that keeps them, pip install 'triptych[instruments]' and write the file again"
        ]
    return True, ["for one piano that plays all instruments but drums see the config own-midi"]


def _window(tokens: list[int], longest: int) -> int:
    """Return the power of two that half of the pieces fill, within the limits."""
    middle = sorted(tokens)[len(tokens) // 2]
    return max(SHORTEST_WINDOW, min(longest, 1 << max(1, middle).bit_length() - 1))


def _facts(looked: ReadFiles[StoredFile, Looks]) -> list[str]:
    pieces = looked.found
    seconds = [piece.seconds for piece in pieces]
    names = program_names()
    uses = Counter(program for piece in pieces for program in piece.programs)
    played = ", ".join(
        f"{'drums' if program == DRUMS else names[program]} in {count}"
        for program, count in uses.most_common(6)
    )
    lines = [
        f"{len(pieces):,} pieces, {sum(seconds) / 60:,.0f} minutes: {span(seconds, ' s')} each",
        f"{sum(piece.n_notes for piece in pieces):,} notes, "
        f"{span([piece.n_notes for piece in pieces])} a piece; tracks of a piece: "
        f"{span([piece.n_parts for piece in pieces])}",
        f"instruments: {played}{', ...' if len(uses) > 6 else ''}",
    ]
    if len(pieces) < 100:
        lines.append(
            "few pieces: the model will repeat them; `triptych evaluate music --statistics 10` "
            "shows how much of a sample is copied"
        )
    return [*lines, *filter(None, [looked.skipped()])]
