"""Tokenizer of four-part chorales: a grid of sixteenths, four tokens per sixteenth.

Serialised as in "Music Transformer" (Huang et al. 2018, arXiv 1809.04281, section 4.1): soprano,
alto, tenor and bass of the first sixteenth, then of the second, and so on. 47 symbols: ids 0 to 45
are the pitches 36 to 81, id 46 is a rest. There is no END.

The grid holds what sounds, not what is struck: a held and a repeated pitch are equal, as in the
public JSB files. Equal pitches in a row become one note of a MIDI file; `attacks.py` has another
tokenizer, which tells them apart.

All constraints permit a rest, so that they leave a token in every row.
"""

import logging
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.frame import Made, chosen_cells, octaves_into, put_into
from triptych.domains.music.notes import SILENT, Ids, Notes, Part, Score
from triptych.domains.music.tokenizers.base import MELODY_REST, GivenPiece, MelodicTokenizer
from triptych.domains.music.tokenizers.voices import (
    N_VOICES,
    NO_NOTE,
    STEPS_PER_QUARTER,
    Voices,
    melody_part,
    read_voices,
)
from triptych.errors import UserError

Grid: TypeAlias = NDArray[np.int64]
"""[T, 4]: MIDI pitch of soprano, alto, tenor and bass in each sixteenth, SILENT for a rest."""

VOICE_RANGES = {"Soprano": (60, 79), "Alto": (55, 74), "Tenor": (48, 67), "Bass": (40, 62)}
"""C4 to G5, G3 to D5, C3 to G4 and E2 to D4, as textbooks of four-part writing give them."""
VOICES = tuple(VOICE_RANGES)
LOWEST, HIGHEST = 36, 81
REST = HIGHEST - LOWEST + 1
SYMBOLS = (*(f"pitch_{pitch}" for pitch in range(LOWEST, HIGHEST + 1)), "rest")

STEPS_PER_BAR = 16
TICKS_PER_STEP = 120

QUARTERS_PER_MINUTE = 75.0
"""Tempo of sampled chorales; a sixteenth is then 0.2 s, a whole number of ticks."""
SECONDS_PER_STEP = 60 / QUARTERS_PER_MINUTE / STEPS_PER_QUARTER
CHOIR_PROGRAM = 52  # General MIDI "Choir Aahs", counted from 0
VELOCITY = 80
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChoraleTokenizer(MelodicTokenizer):
    """Four-part chorales on a grid of sixteenths; content is a `Grid`."""

    name = "chorales"
    content = "grids of four voices"
    constraint_options = ("scale", "ranges", "no_parallels")
    symbols = SYMBOLS
    id_pitches = np.append(np.arange(LOWEST, HIGHEST + 1), SILENT)  # [V]
    rest = REST
    pitch_range = LOWEST, HIGHEST
    bar = STEPS_PER_BAR * N_VOICES
    voice_cycles = ((1, N_VOICES),)
    # Sixteenth in the quarter, and in a bar of four quarters counted from the piece's start.
    meter_cycles = ((N_VOICES, STEPS_PER_QUARTER), (N_VOICES, STEPS_PER_BAR))
    count_contexts: ClassVar = {
        "voice and previous pitch": (N_VOICES, voice_cycles),
        "voice, previous pitch and 16th in the quarter": (
            N_VOICES,
            (*voice_cycles, meter_cycles[0]),
        ),
    }
    tokens_per_unit = N_VOICES
    seconds_per_unit = SECONDS_PER_STEP
    unit = "sixteenths"
    steps_per_second = 1 / SECONDS_PER_STEP
    steps_per_beat = STEPS_PER_QUARTER
    steps_per_bar = STEPS_PER_BAR
    voice_ranges = VOICE_RANGES
    melody_step = N_VOICES
    seconds_per_melody_step = SECONDS_PER_STEP

    def content_of(self, grid: Grid, struck: NDArray[np.bool_]) -> Grid:
        """Return what `encode` takes; struck: bool [T, 4], True where a note begins."""
        return grid

    def encode(self, content: Grid) -> Ids:
        known = (content == SILENT) | ((content >= LOWEST) & (content <= HIGHEST))
        if content.shape[1:] != (N_VOICES,) or not known.all():
            raise ValueError(f"a chorale needs steps of four pitches from {LOWEST} to {HIGHEST}")
        return np.where(content == SILENT, REST, content - LOWEST).reshape(-1)  # [4 T]

    def decode(self, ids: Ids) -> Grid:
        """Read ids as a grid, [4 T] -> [T, 4]; voices that are missing in the last step rest."""
        return self.id_pitches[self._whole(ids)].reshape(-1, N_VOICES)  # [T, 4]

    def _whole(self, ids: Ids) -> Ids:
        return np.pad(ids, (0, -len(ids) % N_VOICES), constant_values=self.rest)  # [4 T]

    def to_score(self, ids: Ids) -> Score:
        """Return the music of any ids with one part per voice, from soprano to bass."""
        ids = self._whole(ids)
        return self._score(ids, np.ones((len(ids) // N_VOICES, N_VOICES), dtype=bool))

    def _score(self, ids: Ids, wanted: NDArray[np.bool_]) -> Score:
        """Return the music of the wanted cells of whole steps of ids; wanted: bool [T, 4].

        A note ends where the voice begins another one or rests, and where wanted cells end.
        """
        grid = np.where(wanted, self.decode(ids), SILENT)  # [T, 4]
        begins = self.onsets(ids).reshape(grid.shape) | (np.diff(grid, axis=0, prepend=SILENT) != 0)
        rows = []
        for voice, line in enumerate(grid.T):
            starts = np.flatnonzero(begins[:, voice] & (line != SILENT))
            changes = np.flatnonzero(begins[:, voice] | (line == SILENT))
            stops = np.append(changes, len(line))[np.searchsorted(changes, starts, side="right")]
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                span = start * TICKS_PER_STEP, stop * TICKS_PER_STEP
                rows.append((line[start], *span, VELOCITY, voice, CHOIR_PROGRAM))
        return Score(
            "music",
            [Part(name, is_drum=False) for name in VOICES],
            Notes.of(rows).sorted("part", "onset", "release", "pitch"),
            TICKS_PER_STEP * STEPS_PER_QUARTER,
            len(grid) * TICKS_PER_STEP,
            [(0, round(60e6 / QUARTERS_PER_MINUTE))],
            [(0, 4, 4)],
        )

    def from_midi(self, score: Score) -> Grid:
        grid, struck = self._grid(score, read_voices(score))
        return self.content_of(grid, struck)

    def _grid(self, score: Score, voices: Voices) -> tuple[Grid, NDArray[np.bool_]]:
        """Return the pitches of voices, and where a note begins: two [T, 4].

        Raises UserError for a file of drums alone and for a pitch without a symbol.
        """
        sung = voices.sung
        if (sung == NO_NOTE).all():
            raise UserError(f"{score.name} holds no notes but drums; expected up to four voices")
        grid = np.where(sung == NO_NOTE, SILENT, score.notes.pitch[sung])
        sounding = grid[grid != SILENT]
        low, high = int(sounding.min()), int(sounding.max())
        if low < LOWEST or high > HIGHEST:
            shift = octaves_into(low, high, LOWEST, HIGHEST)
            raise UserError(
                f"{score.name} has the MIDI pitch {low if low < LOWEST else high}; this model "
                f"sings from {LOWEST} (C2) to {HIGHEST} (A5)"
                + (f": --transpose {shift} (or auto) moves it there" if shift else "")
            )
        before = np.concatenate([np.full_like(sung[:1], NO_NOTE), sung[:-1]])  # [T, 4]
        return grid, (sung != NO_NOTE) & (sung != before)

    def owners(self, score: Score) -> dict[str, int]:
        return {VOICES[voice]: part for voice, part in read_voices(score).owners.items()}

    def _new_steps(
        self, grid: Grid, bars: Ids, keep: str | None, fill: str | None, name: str
    ) -> NDArray[np.bool_]:
        """Return which cells are made anew, bool [T, 4]; bars: their first steps, and the end."""
        cells = chosen_cells(bars, VOICES, keep, fill, name)  # [bars, 4]
        for voice in np.flatnonzero(~cells.any(0)):
            if (grid[:, voice] == SILENT).all():
                word = VOICES[voice].lower()
                raise UserError(f"{name} has no notes of the {word} to keep")
        bar = np.searchsorted(bars, np.arange(len(grid)), side="right") - 1
        return np.asarray(cells[bar.clip(max=len(cells) - 1)])

    def given(
        self, score: Score, keep: str | None, fill: str | None = None, melody: str | None = None
    ) -> GivenPiece:
        """See `MusicTokenizer.given`; one note at a time is the voice that `keep` names alone."""
        voices = read_voices(score, melody_part(score, melody) if melody else None)
        word = (keep or "").strip().capitalize()
        if word in VOICES:
            alone = voices.only_melody(VOICES.index(word))
            if alone is None and melody:
                sung = np.full_like(voices.sung, NO_NOTE)
                sung[:, 0] = voices.sung[:, 0]
                alone = replace(voices, sung=sung).only_melody(VOICES.index(word))
            voices = voices if alone is None else alone
        grid, struck = self._grid(score, voices)
        ids = self.encode(self.content_of(grid, struck))
        lines = np.rint(score.bars() * STEPS_PER_QUARTER / score.ticks_per_quarter)
        new = self._new_steps(grid, lines.astype(np.int64), keep, fill, score.name)
        notes = score.notes
        left_out = int((notes.program >= 0).sum()) - len(
            {*np.unique(voices.sung).tolist(), *np.flatnonzero(voices.of_note >= 0).tolist()}
            - {NO_NOTE}
        )
        if left_out:
            LOG.warning("%s: %d notes are of no voice and are left out", score.name, left_out)

        def finish(ids: Ids) -> Made:
            ids = self._whole(ids)
            old = _kept_notes(score, voices, ~new)
            piece = self._score(ids, new)
            owners = {VOICES[voice]: part for voice, part in voices.owners.items()}
            given = replace(score, notes=old)
            kept = np.ones(len(old), dtype=bool)
            return put_into(given, kept, piece, owners, order=VOICES)

        return GivenPiece(ids, ~new.reshape(-1), finish)

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        # Where a voice takes a new pitch.
        before = np.concatenate([np.full(N_VOICES, REST), ids])[: len(ids)]
        begins: NDArray[np.bool_] = (ids != REST) & (ids != before)
        return begins

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        return (np.arange(len(ids)) // N_VOICES).astype(np.float64) * SECONDS_PER_STEP

    def melody(self, ids: Ids) -> Ids:
        soprano = ids[::N_VOICES]  # [T]
        pitches = np.where(soprano == self.rest, MELODY_REST, self.id_pitches[soprano])  # [T]
        return np.repeat(pitches, N_VOICES)

    @property
    def durations(self) -> Ids:
        return np.ones(self.vocabulary_size, dtype=np.int64)  # a quarter of a sixteenth each

    def melody_steps(self, length: int) -> int:
        return -(-length // N_VOICES)


def _kept_notes(score: Score, voices: Voices, known: NDArray[np.bool_]) -> Notes:
    """Return the notes of a score in known cells, as the file has them; known: bool [T, 4].

    A note that lasts beyond them ends there, and one that began before them begins there.
    """
    notes, sung = score.notes, voices.sung
    per_step = score.ticks_per_quarter / STEPS_PER_QUARTER
    rows: dict[int, tuple[int, int]] = {}  # onset and release
    for voice in range(N_VOICES):
        line = np.where(known[:, voice], sung[:, voice], NO_NOTE)
        edges = np.flatnonzero(np.diff(line, prepend=NO_NOTE - 1))
        for start, stop in zip(edges.tolist(), [*edges[1:].tolist(), len(line)], strict=True):
            row = int(line[start])
            if row == NO_NOTE or row in rows:
                continue
            begun = start > 0 and sung[start - 1, voice] == row
            goes_on = stop < len(line) and sung[stop, voice] == row
            onset = round(start * per_step) if begun else int(notes.onset[row])
            rows[row] = onset, round(stop * per_step) if goes_on else int(notes.release[row])
    steps = np.minimum(notes.onset / per_step, len(known) - 1).astype(np.int64)
    for row in np.flatnonzero(voices.of_note >= 0).tolist():  # ornaments
        on_grid = (sung[:, voices.of_note[row]] == row).any()
        if row not in rows and not on_grid and known[steps[row], voices.of_note[row]]:
            rows[row] = int(notes.onset[row]), int(notes.release[row])
    times = np.array([*rows.values()], dtype=np.int64).reshape(-1, 2)
    kept = notes[np.array([*rows], dtype=np.int64)]
    return replace(kept, onset=times[:, 0], release=times[:, 1])
