"""Interface of the music tokenizers: everything that differs between events and chorales.

Windows, batches, the model and sampling know tokens only. A new tokenizer is a subclass in a file
of this folder, which settings name as `model.tokenizer`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.conditions import ConstraintOptions, check_known
from triptych.domains.music.frame import Made, cut, put_into
from triptych.domains.music.notes import SILENT, STEPS_PER_SECOND, Ids, Score
from triptych.domains.music.tokenizers.rules import NoParallels, PermittedPitches
from triptych.errors import UserError
from triptych.types import Checked

Cycles: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs (divide, modulo): a position is at position // divide % modulo of each cycle."""
MELODY_REST = 128
"""Stands for a rest in a melody, whose other values are MIDI pitches."""
N_MELODY_SYMBOLS = 129


@dataclass(frozen=True)
class GivenPiece:
    """Piece of which some tokens are known and the others are to be sampled."""

    ids: Ids
    """[L]; any id where unknown."""
    known: NDArray[np.bool_]
    """[L], True for the tokens that are kept."""
    finish: Callable[[Ids], Made]
    """Returns the completed ids as music in the frame of the file, whose kept notes are as they are
    in it."""


class FillPart(NamedTuple):
    """Part of a piece that is made anew at a time, between what stands before and after it."""

    prompt: Ids
    """Ids of both sides."""
    grammar: Callable[[int], LogitsConstraint]
    """Returns a fresh rule of the ids after a prompt of so many ids, for one row."""
    answer: Ids
    """Ids after the prompt that write the part as it is in the piece."""
    plain: Ids
    """The part as it is in the piece, without infilling."""
    before: Ids
    """The piece before it, without infilling."""


class FillTask(NamedTuple):
    """Piece of which some bars or parts are made anew."""

    score: Score
    keep: str | None
    fill: str | None
    """As in `chosen_cells`."""
    sample: Callable[[FillPart], Ids]
    """Returns the ids that follow the prompt of a part."""
    window: int
    """Length of the model's window, in tokens."""


class Prompt(NamedTuple):
    """Beginning of a piece that is continued."""

    ids: Ids
    end: int
    """Tick of `to_score` at which new music begins."""


class MusicTokenizer(Checked, ABC):
    """Writes pieces as token ids and turns any sequence of ids into music.

    Content is what a source reads and the tokenizer encodes: `Notes` for events, a grid of pitches
    for chorales. Subclasses are frozen dataclasses; their fields are settings of the model.
    """

    name: ClassVar[str]
    """Name of the tokenizer in a checkpoint."""
    content: ClassVar[str]
    """What it encodes, in words; a source that reads no MIDI files fits one such kind."""
    end: ClassVar[int | None] = None
    """Id of the end of a piece; None where pieces have no end mark."""
    pitch_range: ClassVar[tuple[int, int]]
    """Lowest and highest MIDI pitch of a transposed piece."""
    bar: ClassVar[int] = 1
    """Tokens per bar: windows start at multiples of it, so that a position implies its voice and
    its place in the bar; 1 where tokens have no meter."""
    voice_cycles: ClassVar[Cycles] = ()
    """Cycles of a position that give its voice."""
    meter_cycles: ClassVar[Cycles] = ()
    """Cycles of a position that give its place in the meter."""
    count_contexts: ClassVar[dict[str, tuple[int | None, Cycles]]] = {
        "frequency of the token": (None, ()),
        "previous token": (1, ()),
    }
    """Contexts of the baselines that count, by name: the distance of an earlier token in the
    context, None for no token, and the cycles of the position."""
    tokens_per_unit: ClassVar[int] = 1
    """Tokens in one unit of the length of a sample, an event or a sixteenth."""
    seconds_per_unit: ClassVar[float] = 1 / 200
    """Seconds in one unit; the least where units differ: a performance of MAESTRO has about 40
    tokens in a second, a band about 100."""
    unit: ClassVar[str]
    """Name of several units."""
    by_seconds: ClassVar[bool] = False
    """Whether times are those of a clock, without bars; else `to_score` counts quarters."""
    steps_per_second: ClassVar[float] = STEPS_PER_SECOND
    """Steps of the time grid on which notes begin and end."""
    steps_per_beat: ClassVar[int | None] = None
    steps_per_bar: ClassVar[int | None] = None
    """Steps in a beat and in a bar; None where the music has no meter."""
    constraint_options: ClassVar[tuple[str, ...]] = ()
    """Fields of `ConstraintOptions` that constrain this music; the others are refused."""
    voice_ranges: ClassVar[dict[str, tuple[int, int]]] = {}
    """Name and usual range of MIDI pitches of each voice, from the highest; empty where the music
    has no voices. A step has a token of each voice, in this order, as are the parts of
    `to_score`."""

    @property
    def melody_program(self) -> int:
        """Program of General MIDI for a melody without an instrument of its own."""
        return 0

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """Name of each id, in order; may depend on the tokenizer's settings."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return len(self.symbols)

    @property
    def vocabulary(self) -> dict[str, Any]:
        """Description of the ids for a checkpoint, JSON types only."""
        return {"tokenizer": self.name, "symbols": list(self.symbols)}

    def check_vocabulary(self, vocabulary: dict[str, Any], owner: str, *, hint: str = "") -> None:
        """Raise UserError where the owner of a vocabulary was trained with other ids.

        hint: end of the message.
        """
        if any(vocabulary.get(key) != self.vocabulary[key] for key in ("tokenizer", "symbols")):
            raise UserError(
                f"{owner} was trained with the tokenizer {vocabulary.get('tokenizer')!r} of "
                f"{len(vocabulary['symbols'])} symbols; the music is written with {self.name!r} of "
                f"{self.vocabulary_size}{hint}"
            )

    @abstractmethod
    def from_midi(self, score: Score) -> Any:
        """Return the content of a MIDI file; raises UserError where it has none."""

    @abstractmethod
    def encode(self, content: Any) -> Ids:
        """Return the ids of a piece, without an end mark; ValueError where it has no ids."""

    @abstractmethod
    def to_score(self, ids: Ids) -> Score:
        """Return the music of any sequence of ids."""

    def owners(self, score: Score) -> dict[str, int]:
        """Return by name of a part of `to_score` the part of a score that plays its notes.

        New notes for a given piece go to these parts; parts that it lacks are added.
        """
        return {}

    def given(
        self, score: Score, keep: str | None, fill: str | None = None, melody: str | None = None
    ) -> GivenPiece:
        """Return a piece of which voices or bars are kept.

        keep, fill: what is kept, or what is made anew, as in `chosen_cells`. melody: name or number
        of the melody's track. Raises UserError for music without voices, for names and bars that
        the piece lacks, and where nothing is left.
        """
        raise self._without_voices()

    def fill(self, task: FillTask) -> Made:
        """Return a piece of which some bars or parts are made anew, where `can_fill`."""
        if not self.can_fill:
            raise self._without_voices()
        score = task.score
        names = [part.name or f"track {number}" for number, part in enumerate(score.parts, start=1)]
        cells, new = self.filled(task, names)
        lines = score.bars()
        bar = np.searchsorted(lines, score.notes.onset, side="right") - 1
        kept = ~cells[bar.clip(max=len(cells) - 1), score.notes.part]
        made = put_into(score, kept, new, self.owners(score), by_seconds=self.by_seconds)
        end = int(lines[-1])  # new notes may last longer
        return Made(cut(made.score, end), made.is_new[made.score.notes.onset < end])

    def filled(self, task: FillTask, names: list[str]) -> tuple[NDArray[np.bool_], Score]:
        """Return which parts of which bars are made anew, bool [bars, parts], and what is new.

        names: of the parts; further columns are instruments that the piece lacks.
        """
        raise NotImplementedError

    def note_tokens(self, ids: Ids) -> NDArray[np.bool_]:
        """Mark the ids that write notes: all but marks and what is given of a part."""
        return np.ones(len(ids), dtype=bool) if self.end is None else ids != self.end

    def fill_example(self, ids: Ids, generator: torch.Generator) -> Ids:
        """Return a crop of a piece with a part of it written as one that is made anew.

        Where `can_fill`. A crop that is too short for that comes back as it is.
        """
        raise NotImplementedError

    def _without_voices(self) -> UserError:
        return UserError(
            f"this model ({self.name}) cannot keep a part of a piece and make the rest: it has no "
            "voices, and it was not trained with data.infilling_share; it can continue the "
            "beginning of a piece, a primer"
        )

    @property
    def can_fill(self) -> bool:
        """Whether there are ids for a part that is made anew, see `data.infilling_share`."""
        return bool(getattr(self, "infilling", False))

    @property
    def condition_options(self) -> tuple[str, ...]:
        """Fields of `FrameOptions` that the model knows."""
        return "bars", "tempo", "meter"

    def frame_prompt(self, blank: Score) -> Prompt | None:
        """Return how a new piece in the frame of one without notes begins; None for nothing."""
        return None

    def prompt(self, score: Score) -> Prompt:
        """Return the beginning of a piece to continue, up to the end of the score."""
        ids = self.encode(self.from_midi(score))
        return Prompt(ids, self.to_score(ids).last_tick)

    @abstractmethod
    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        """Mark the tokens of a piece at which a note begins, by the ids of at most a bar before."""

    @property
    @abstractmethod
    def id_pitches(self) -> Ids:
        """MIDI pitch of each id that a transposition moves, -1 for the others: [V]."""

    @abstractmethod
    def seconds(self, ids: Ids) -> NDArray[np.float64]:
        """Return the time of each token of a piece in seconds."""

    def pitches(self, ids: Ids) -> Ids:
        """Return the MIDI pitch of the note to which each token of a piece belongs, -1 for none."""
        return self.id_pitches[ids]

    def transpose(self, ids: Ids, semitones: int) -> Ids:
        """Return the ids of a part of a piece, transposed; drums stay."""
        return np.where(self.id_pitches[ids] >= 0, ids + semitones, ids)

    def transposition(self, semitones: int) -> Ids:
        """Return each id transposed, -1 for a pitch that has no id then: int64 [V]."""
        ids = np.arange(self.vocabulary_size)
        moved = self.transpose(ids, semitones)  # [V]
        known = (moved >= 0) & (moved < len(ids))
        pitches = self.id_pitches[np.where(known, moved, 0)] - (moved - ids)  # [V]
        return np.where(known & (pitches == self.id_pitches), moved, -1)

    def stretched(self, content: Any, factors: Sequence[float]) -> list[Any]:
        """Return a piece with its times multiplied by each factor that training draws from.

        Empty where the piece has one speed.
        """
        return []

    def n_tokens(self, *, seconds: float | None, length: int | None) -> int:
        """Return the largest number of new tokens of a sample of so many units or seconds."""
        if length is None:
            assert seconds is not None
            length = max(1, round(seconds / self.seconds_per_unit))
        return length * self.tokens_per_unit

    def tokens(self, content: Any) -> Ids:
        """Return the ids of a whole piece, its end mark included."""
        ids = self.encode(content)
        return ids if self.end is None else np.append(ids, self.end)

    def without_end(self, ids: Ids) -> Ids:
        """Return the ids before the end of a piece."""
        return ids if self.end is None else ids[np.cumsum(ids == self.end) == 0]

    def trim(self, ids: Ids, *, seconds: float | None, n_prompt: int) -> Ids:
        """Cut what was sampled after a prompt to `seconds` of new music."""
        return ids

    def grammar(
        self, batch: int, *, seconds: float | None, n_prompt: int, start: int = 0
    ) -> LogitsConstraint | None:
        """Return a fresh rule of forbidden ids for one run of sampling; None for no rule.

        seconds: of new music. start: tick of `to_score` before which no new note may be.
        """
        return None

    def constraints(self, options: ConstraintOptions | None) -> list[LogitsConstraint]:
        """Return the rules of the options, which hold after the grammar, for `ByPriority`.

        Raises UserError for an option that does not constrain this music, and where no pitch meets
        it.
        """
        if options is None:
            return []
        check_known(options, ConstraintOptions, self.constraint_options, self.name)
        return self.rules(options)

    def rules(self, options: ConstraintOptions) -> list[LogitsConstraint]:
        """Return the rules of options of `constraint_options`, the most important one first."""
        rules: list[LogitsConstraint] = []
        if options.scale is not None or options.ranges is not None:
            begins = self.onsets(np.arange(self.vocabulary_size))  # [V]
            pitches = np.where(begins, self.id_pitches, SILENT)  # [V]
            rules.append(PermittedPitches(options, pitches, self.voice_ranges))
        if options.no_parallels:
            rules.append(NoParallels(self.id_pitches, len(self.voice_ranges)))
        return rules


class MelodicTokenizer(MusicTokenizer):
    """Tokenizer of music with a melody, which a model may be given."""

    melody_step: ClassVar[int]
    """Duration of one step of the melody that an encoder reads, in units of `durations`."""
    seconds_per_melody_step: ClassVar[float]

    @abstractmethod
    def melody(self, ids: Ids) -> Ids:
        """Return the highest pitch in each unit of `durations`, MIDI or MELODY_REST: int64 [U]."""

    @property
    @abstractmethod
    def durations(self) -> Ids:
        """Time by which each id moves the music on, int64 [V]; their sum places a token in it."""

    @abstractmethod
    def melody_steps(self, length: int) -> int:
        """Return the number of steps of the melody that a window of `length` tokens is given."""
