"""Tokenizer of several instruments and drums: REMI+ of the library MidiTok.

REMI (Huang and Yang 2020, arXiv 2002.00212) writes music by bars: Bar, then Position in the bar,
then Pitch and Duration of each note. REMI+ (von Rütte et al. 2022, arXiv 2201.10936) adds a time
signature to each bar and a program to each note, so that one sequence holds all instruments:

    Bar TimeSig_3/4 Position_0 Tempo_120 Program_violin Pitch_62 Duration_1.0.12
    Program_cello Pitch_50 Duration_1.0.12 Position_12 Program_violin ...

A Duration is beats.positions.positions per beat. Notes of one position are in the order of the
instruments, then of their pitches. A beat is the note of the time signature's denominator. Drums
have pitches of their own, which nothing transposes. The pedal is not read.

MidiTok encodes and decodes; it is an optional dependency and imported at the first use. MIDI files
are read by `midi.py`, since symusic, MidiTok's reader, drops notes without a release.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from triptych.decoding.constraints import Forbidden
from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.constraints import ConstraintOptions
from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.notes import DRUMS, Ids, Score, latest
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.instruments import Ensemble, program_names
from triptych.domains.music.tokenizers.remi_grammar import (
    DEFAULT_TEMPO,
    DRUM_RANGE,
    Kind,
    Meaning,
    RemiGrammar,
)
from triptych.errors import UserError, library
from triptych.types import NonNegativeInt, PositiveInt

FINE_BEATS, MAX_BEATS = 4, 16
"""Durations below FINE_BEATS are on the grid of positions, longer ones on half beats; a longer note
than MAX_BEATS is cut."""
METERS = {4: tuple(range(1, 9)), 8: tuple(range(1, 13))}
"""Numerators of time signatures by denominator. Half notes are counted as two quarters; bars of
another signature keep the one before."""
TEMPO_RANGE = (20, 320)
"""Slowest and fastest tempo, in quarter notes per minute; the steps between are equal ratios."""


@dataclass(frozen=True)
class RemiTokenizer(MusicTokenizer):
    """Music of several instruments and drums, by bars; content is the ids themselves.

    MidiTok takes a while to encode a file, so that reading, which several processes share, does it.
    """

    instruments: tuple[str, ...] | None = None
    """Instruments in the order of their notes: names of General MIDI, program numbers from 0 to
    127, or drums; a program given twice makes two instruments, as the violins of a quartet. Other
    instruments are left out. null for every program once, and drums."""
    positions_per_beat: PositiveInt = 12
    """Positions in a beat: 12 writes sixteenths and triplets exactly."""
    velocities: NonNegativeInt = 0
    """Number of velocities; 0 writes none, and every note sounds equally loud."""
    tempos: NonNegativeInt = 48
    """Number of tempos; 0 writes none, and the music is played at 120 quarters per minute."""

    name = "remi"
    content = "ids of several instruments"
    constraint_options = ("instruments",)
    end = 0
    pitch_range = 21, 108
    count_contexts: ClassVar = {"frequency of the token": (None, ()), "previous token": (1, ())}
    tokens_per_unit = 1
    seconds_per_unit = 1 / 200
    """Bound on the tokens in a second: a quartet has about 30, a band about 100."""
    unit = "tokens"
    steps_per_second = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.instruments is not None and not self.instruments:
            raise ValueError("instruments is empty; expected names of instruments, or null for all")
        _ = self.ensemble  # refuses unknown names

    @cached_property
    def ensemble(self) -> Ensemble:
        """Instruments of the music."""
        return Ensemble.of(self.instruments or (*program_names(), "drums"))

    @property
    def melody_program(self) -> int:
        """Program of the piano where it plays, else of the first instrument but drums."""
        programs = [program for program in self.ensemble.programs if program != DRUMS]
        return 0 if 0 in programs or not programs else programs[0]

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Program by which MidiTok knows each instrument: its index, so that all differ."""
        return tuple(
            DRUMS if program == DRUMS else index
            for index, program in enumerate(self.ensemble.programs)
        )

    @cached_property
    def miditok(self) -> Any:
        """MidiTok's tokenizer; raises UserError where the package is not installed."""
        miditok = library("miditok", "music of several instruments", "instruments")
        beats = {(0, FINE_BEATS): self.positions_per_beat, (FINE_BEATS, MAX_BEATS): 2}
        config = miditok.TokenizerConfig(
            pitch_range=(0, 127),
            drums_pitch_range=DRUM_RANGE,
            beat_res=beats,
            special_tokens=["EOS"],
            use_programs=True,
            one_token_stream_for_programs=True,
            programs=list(self.numbers),
            use_note_duration_programs=list(self.numbers),
            use_velocities=bool(self.velocities),
            num_velocities=max(1, self.velocities),
            use_tempos=bool(self.tempos),
            num_tempos=max(1, self.tempos),
            tempo_range=TEMPO_RANGE,
            log_tempos=True,
            use_time_signatures=True,
            time_signature_range={unit: list(counts) for unit, counts in METERS.items()},
            remove_duplicated_notes=True,
            delete_equal_successive_tempo_changes=True,
            delete_equal_successive_time_sig_changes=True,
        )
        return miditok.REMI(config)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Names of MidiTok, but the instruments' own."""
        own = {
            f"Program_{n}": name for n, name in zip(self.numbers, self.ensemble.names, strict=True)
        }
        words = sorted(self.miditok.vocab, key=self.miditok.vocab.get)
        return tuple(f"Program_{own[word]}" if word in own else word for word in words)

    @property
    def vocabulary(self) -> dict[str, Any]:
        return {**super().vocabulary, "miditok": self.miditok.to_dict()}

    @cached_property
    def meaning(self) -> Meaning:
        """What each id says."""
        words = [symbol.partition("_")[::2] for symbol in self.symbols]
        kind = np.array([Kind[name] for name, _ in words])
        number = np.zeros(len(words), dtype=np.int64)
        bar, step, quarter = np.zeros((3, len(words)))
        for index, (name, value) in enumerate(words):
            if name == "Program":
                number[index] = self.ensemble.names.index(value)
            elif name in ("Pitch", "PitchDrum", "Position"):
                number[index] = int(value)
            elif name == "TimeSig":
                count, unit = map(int, value.split("/"))
                bar[index], step[index] = 4 * count / unit, 4 / unit / self.positions_per_beat
            elif name == "Tempo":
                quarter[index] = 60 / float(value)
        return Meaning(kind, number, bar, step, quarter)

    def from_midi(self, score: Score) -> Ids:
        tokens = self.miditok.encode(self._to_symusic(score), encode_ids=False)
        ids = np.array(tokens.ids, dtype=np.int64)
        notes = np.flatnonzero(self.meaning.kind[ids] == Kind.Duration)
        if not len(notes):
            raise UserError(
                f"{score.name} holds no notes of the instruments {', '.join(self.ensemble.names)}"
            )
        return ids[: notes[-1] + 1]  # a time signature may follow

    def _to_symusic(self, score: Score) -> Any:
        """Return the notes of the instruments, with tempos and meters, as a score of symusic."""
        _ = self.miditok  # the sentence where the packages are missing
        import symusic

        assigned = self.ensemble.assign(score)
        written: Any = symusic.Score(score.ticks_per_quarter)
        for player in np.unique(assigned[assigned >= 0]):
            number = self.numbers[player]
            track: Any = symusic.Track(program=max(0, number), is_drum=number == DRUMS)
            notes = score.notes[assigned == player].sorted("onset", "release", "pitch", "velocity")
            rows = notes.rows("onset", "release", "pitch", "velocity")
            track.notes.extend([symusic.Note(a, b - a, *note) for a, b, *note in rows])
            written.tracks.append(track)
        for tick, tempo in score.tempos:
            written.tempos.append(symusic.Tempo(tick, mspq=tempo))
        for tick, count, unit in score.time_signatures:
            count, unit = (2 * count, 4) if unit == 2 else (count, unit)
            written.time_signatures.append(symusic.TimeSignature(tick, count, unit))
        return written

    def encode(self, content: Ids) -> Ids:
        return content

    def to_midi(self, ids: Ids) -> Any:
        """Return the music of any ids up to END, with one instrument for each that plays.

        A note ends at the latest at the next one of its pitch and instrument.
        """
        import io

        import pretty_midi

        late = self.seconds(ids) >= MAX_SECONDS  # a longer file could not be read again
        stop = np.flatnonzero((ids == self.end) | late)
        score = self.miditok.decode(ids[: stop[0]].tolist() if len(stop) else ids.tolist())
        tracks = {DRUMS if track.is_drum else track.program: track for track in score.tracks}
        score.tracks = [tracks[number] for number in self.numbers if number in tracks]
        for track in score.tracks:
            player = self.numbers.index(DRUMS if track.is_drum else track.program)
            track.program = max(0, self.ensemble.programs[player])
            track.name = self.ensemble.names[player]
            track.notes.sort(key=lambda note: (note.pitch, note.time))
            for note, following in pairwise(track.notes):
                if note.pitch == following.pitch:
                    note.duration = min(note.duration, following.time - note.time)
            track.notes = [note for note in track.notes if note.duration > 0]
        if not any(track.notes for track in score.tracks):
            return pretty_midi.PrettyMIDI()  # symusic would write times out of order
        return pretty_midi.PrettyMIDI(io.BytesIO(score.dumps_midi()))

    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        begins: NDArray[np.bool_] = np.isin(self.meaning.kind[ids], (Kind.Pitch, Kind.PitchDrum))
        return begins

    @cached_property
    def id_pitches(self) -> Ids:
        """Pitches of all notes but drums."""
        return np.where(self.meaning.kind == Kind.Pitch, self.meaning.number, -1)

    def pitches(self, ids: Ids) -> Ids:
        """Return the pitch of each token; velocity and duration have that of their note."""
        begins = self.onsets(ids)
        of_note = begins | np.isin(self.meaning.kind[ids], (Kind.Velocity, Kind.Duration))
        note = latest(begins).clip(min=0)  # where there is none, the first token
        return np.where(of_note, self.id_pitches[ids[note]], -1)

    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        meaning, kinds = self.meaning, self.meaning.kind[ids]

        def in_force(values: NDArray[np.float64], kind: int, default: float) -> Any:
            at = latest(kinds == kind)
            return np.where(at >= 0, values[ids[at]], default)

        bars = np.flatnonzero(kinds == Kind.Bar)
        lengths = in_force(meaning.bar, Kind.TimeSig, 4.0)
        # A bar is as long as the time signature in force before the next bar says.
        starts = np.concatenate([[0.0, 0.0], np.cumsum(lengths[bars[1:] - 1])])[: len(bars) + 1]
        start = starts[np.cumsum(kinds == Kind.Bar)]  # of the bar of each token, in quarters
        position, bar = latest(kinds == Kind.Position), latest(kinds == Kind.Bar)
        steps = np.where(position > bar, meaning.number[ids[position]], 0)
        quarters = start + steps * in_force(meaning.step, Kind.TimeSig, 1 / self.positions_per_beat)
        speed = in_force(meaning.quarter, Kind.Tempo, 60 / DEFAULT_TEMPO)
        before = np.concatenate([[60 / DEFAULT_TEMPO], speed])[: len(ids)]
        seconds: NDArray[np.float64] = np.cumsum(np.diff(quarters, prepend=0.0) * before)
        return seconds

    def grammar(self, batch: int, *, seconds: float | None, n_prompt: int) -> RemiGrammar:
        is_drum = [program == DRUMS for program in self.ensemble.programs]
        return RemiGrammar(self.meaning, is_drum, batch, seconds=seconds, n_prompt=n_prompt)

    def rules(self, options: ConstraintOptions) -> list[LogitsConstraint]:
        if options.instruments is None:
            return []
        try:
            chosen = self.ensemble.choose(options.instruments.split(","))
        except ValueError as error:
            raise UserError(str(error)) from error
        others = (self.meaning.kind == Kind.Program) & ~np.isin(self.meaning.number, chosen)
        return [Forbidden(np.flatnonzero(others).tolist(), self.vocabulary_size)]
