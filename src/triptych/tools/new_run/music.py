"""What a user's folder of MIDI files holds: pieces, lengths and instruments."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from triptych.domains.music.midi import MUSIC_SUFFIXES, parse_midi
from triptych.domains.music.notes import DRUMS, Score, on_grid
from triptych.domains.music.sources.midi_folder import (
    ARCHIVE_SUFFIXES,
    MidiFolder,
    StoredFile,
    read_split_table,
    stored_files,
)
from triptych.domains.music.tokenizers.chorales import VOICES
from triptych.domains.music.tokenizers.instruments import program_names
from triptych.domains.music.tokenizers.voices import N_VOICES, STEPS_PER_QUARTER
from triptych.domains.options import NewRunOptions
from triptych.errors import UserError
from triptych.files.splits import hash_position
from triptych.tools.new_run.data import (
    Description,
    Setting,
    data_files,
    held_out,
    left_out,
    read_usable,
    span,
)

KIND = "MIDI files"
LEAST = 4
"""Fewest pieces of which some can be trained on and others held out."""
PIANO, BAND, CHORALES = "own-midi", "band-midi", "chorales"
"""Templates."""
TOKENS_PER_NOTE = {PIANO: 4, BAND: 5}
"""Rough number of tokens of a note, by template."""
TOKENS_PER_QUARTER = N_VOICES * STEPS_PER_QUARTER
"""Of a chorale."""
LONGEST_WINDOW = {PIANO: 2048, BAND: 1024, CHORALES: 512}
SHORTEST_WINDOW = 256
ORDER = ("test", "validation")
"""Of the held-out splits in `MidiFolder`."""
ADVICE = {
    PIANO: [
        "suggested: a model of performances on one piano; it reads other instruments as the piano "
        "and drops drums: for both see the config band-midi"
    ],
    BAND: [
        "suggested: a model of several instruments and drums; that drops the pedal",
        "for one piano that plays all instruments but drums see the config own-midi",
    ],
    CHORALES: [
        "suggested: a model of chorales on a grid of sixteenths, because most pieces have four "
        "parts, as single voices or on two staves; of others the four highest pitches at a time "
        "are read, and pieces with pitches outside C2 to A5 are skipped",
        "that drops drums, loudness and pedal: for music as it was played see the config own-midi, "
        "for its instruments band-midi",
    ],
}
"""What the suggested model reads of the pieces, and what that drops, by template."""
MOST_DIVIDED = 0.02
"""Share of the steps in which a voice may sing more than one note."""


class Looks(NamedTuple):
    """What one MIDI file holds."""

    place: float
    """That decides its split, see `hash_position`."""
    seconds: float
    n_notes: int
    n_parts: int
    programs: frozenset[int]
    """General MIDI programs; DRUMS for drums."""
    quarters: float
    is_four_part: bool
    """Whether the pitched notes are four single voices, or two voices on each of two staves."""


def describe(options: NewRunOptions) -> Description:
    """Look at a folder of MIDI files.

    Raises UserError for a damaged csv of splits and as `data_files` does.
    """
    folder = Path(options.data).expanduser()
    _, others = data_files(folder, (*MUSIC_SUFFIXES, *ARCHIVE_SUFFIXES), KIND)
    with stored_files(folder, MUSIC_SUFFIXES) as files:
        pieces = read_usable(_read, files, folder, what=KIND, least=LEAST)
    template = _template(pieces)
    tokens = [_tokens(piece, template) for piece in pieces]
    length = _window(tokens, LONGEST_WINDOW[template])
    splits = () if read_split_table(folder) else ORDER
    shares = held_out([piece.place for piece in pieces], splits, usual=0.1, what="pieces")
    settings = {"data.source.directory": Setting(options.data)}
    settings |= {f"data.source.{name}": share for name, share in shares.items()}
    notes = f"tokens of a window, about {length // TOKENS_PER_NOTE.get(template, 1)} notes"
    if template == CHORALES:
        notes = f"tokens of a window, {length // TOKENS_PER_QUARTER} quarters"
        arguments = {"directory": options.data} | {name: s.value for name, s in shares.items()}
        source = f"{MidiFolder.__module__}.{MidiFolder.__name__}"
        held = ", ".join(f"{name.split('_')[0]} {share.why}" for name, share in shares.items())
        value = {"class_path": source, "init_args": arguments}
        settings = {"data.source": Setting(value, f"held out: {held}" if held else "")}
    return Description(
        template=template,
        unit="notes",
        amount=sum(piece.n_notes for piece in pieces),
        items=sum(max(1.0, count / length) for count in tokens) * 0.8,
        settings={
            **settings,
            "data.sequence_length": Setting(length, notes),
            "data.overlap": Setting(length // 2),
        },
        facts=_facts(pieces) + left_out([file.name for file in others if file.suffix != ".csv"]),
        advice=ADVICE[template],
    )


def _tokens(piece: Looks, template: str) -> int:
    if template == CHORALES:
        return max(1, round(TOKENS_PER_QUARTER * piece.quarters))
    return TOKENS_PER_NOTE[template] * piece.n_notes


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
        midi.last_tick / midi.ticks_per_quarter,
        _is_four_part(midi),
    )


def _is_four_part(score: Score) -> bool:
    """Return whether a piece is for four voices of one kind, or names soprano, alto and so on."""
    notes = on_grid(score.notes, STEPS_PER_QUARTER, per=score.ticks_per_quarter)
    names = {part.name.strip().capitalize() for part in score.parts}
    if names >= set(VOICES):
        return True
    if len(notes) < len(score.notes) or len(set(notes.program.tolist())) > 1:
        return False
    parts = [notes[notes.part == number] for number in range(len(score.parts))]
    if len(parts) not in (2, N_VOICES):
        return False
    on_a_staff = N_VOICES // len(parts)
    length = int(notes.release.max()) + 1
    for own in parts:
        begun, ended = (np.bincount(times, minlength=length) for times in (own.onset, own.release))
        if np.mean(np.cumsum(begun - ended) > on_a_staff) > MOST_DIVIDED:
            return False
    return True


def _template(pieces: list[Looks]) -> str:
    """Return the config for what most pieces are: chorales, several instruments, or one piano."""
    if 2 * sum(piece.is_four_part for piece in pieces) > len(pieces):
        return CHORALES
    several = sum(len(piece.programs) > 1 or DRUMS in piece.programs for piece in pieces)
    return BAND if 2 * several > len(pieces) else PIANO


def _window(tokens: list[int], longest: int) -> int:
    """Return the power of two that half of the pieces fill, within the limits."""
    middle = sorted(tokens)[len(tokens) // 2]
    return max(SHORTEST_WINDOW, min(longest, 1 << max(1, middle).bit_length() - 1))


def _facts(pieces: list[Looks]) -> list[str]:
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
    return lines
