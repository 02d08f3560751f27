"""The two ways of writing music as tokens, behind one interface.

Everything that differs between performances and chorales is here; windows, batches, task and
sampling below know tokens only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pretty_midi
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.music import chorales, events
from triptych.domains.music.augment import Augmentation, transpose_grid, vary_notes
from triptych.errors import UserError

Ids = NDArray[np.int64]
Forbid = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Piece:
    """One piece of a data set; content is `events.Notes` or a chorale's grid."""

    name: str
    content: Any


class Representation(ABC):
    """How pieces become tokens and tokens become music."""

    name: ClassVar[str]
    vocabulary: ClassVar[tuple[str, ...]]
    """Name of each id, in order."""
    end: ClassVar[int | None] = None
    """Id that ends a piece, None where pieces have no end mark."""
    alignment: ClassVar[int] = 1
    """Windows start at multiples of this many tokens, so that a position tells the voice."""
    voices: ClassVar[tuple[tuple[int, int], ...]] = ()
    """(divide, modulo) of the position embedding that says which voice a position belongs to."""
    metre: ClassVar[tuple[tuple[int, int], ...]] = ()
    """The same of those that say where in the metre it stands."""
    length_unit: ClassVar[str]
    """What `length` counts when sampling."""
    repeats_after: ClassVar[int | None] = None
    """Most tokens are the one that stood so many tokens before; None where that is not so."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return len(self.vocabulary)

    @abstractmethod
    def tokens(self, piece: Piece) -> Ids:
        """Write a whole piece as ids, its end mark included."""

    @abstractmethod
    def onsets(self, tokens: Ids) -> NDArray[np.bool_]:
        """Mark the tokens of a whole piece at which a note begins."""

    @abstractmethod
    def augment(self, piece: Piece, settings: Augmentation, generator: torch.Generator) -> Piece:
        """Give a random variation of a training piece."""

    @abstractmethod
    def prompt(self, primer: pretty_midi.PrettyMIDI, *, name: str) -> Ids:
        """Write a primer as ids without end mark; UserError where it cannot be."""

    @abstractmethod
    def n_tokens(self, *, seconds: float | None, length: int | None) -> int:
        """Say how many new tokens to sample at most; exactly one of the two is given."""

    @abstractmethod
    def to_midi(self, tokens: Ids) -> pretty_midi.PrettyMIDI:
        """Play any sequence of ids."""

    @abstractmethod
    def places(self, tokens: Ids) -> tuple[NDArray[np.float64], Ids]:
        """Say where tokens stand in the music: seconds and pitch of each, -1 for no pitch."""

    def within(self, tokens: Ids, *, seconds: float | None, n_prompt: int) -> Ids:
        """Cut what was drawn behind a prompt to so much new music."""
        return tokens

    def forbid(self, batch: int, *, seconds: float | None, n_prompt: int) -> Forbid | None:
        """Give the rule for ids that may not come next, for one run of sampling; None for none.

        The rule is called with all ids so far, int64 [B, t], and gives bool [B, V].
        """
        return None


class PerformanceEvents(Representation):
    """Piano performances as events; see events.py."""

    name = "events"
    vocabulary = tuple(events.vocabulary())
    end = events.END
    length_unit = "events"

    MOST_EVENTS_PER_SECOND = 200
    """Bound on the tokens of a second of sampled music; MAESTRO has about 40."""

    def tokens(self, piece: Piece) -> Ids:
        """Write the notes as events and END."""
        return np.append(events.encode_notes(piece.content), events.END)

    def onsets(self, tokens: Ids) -> NDArray[np.bool_]:
        """Mark the note-ons."""
        return tokens < events.NOTE_OFF

    def augment(self, piece: Piece, settings: Augmentation, generator: torch.Generator) -> Piece:
        """Transpose and stretch the whole performance."""
        return Piece(piece.name, vary_notes(piece.content, settings, generator))

    def prompt(self, primer: pretty_midi.PrettyMIDI, *, name: str) -> Ids:
        """Write the primer with its pedal applied."""
        ids = events.encode_notes(events.reference_notes(primer))
        if not len(ids) and any(instrument.notes for instrument in primer.instruments):
            raise UserError(f"{name} holds no notes but drums; expected notes to go on from.")
        return ids

    def n_tokens(self, *, seconds: float | None, length: int | None) -> int:
        """Count events; seconds give an upper bound, the rule of `forbid` stops in time."""
        if length is not None:
            return length
        assert seconds is not None
        return max(1, round(seconds * self.MOST_EVENTS_PER_SECOND))

    def to_midi(self, tokens: Ids) -> pretty_midi.PrettyMIDI:
        """Play the events."""
        return events.decode(tokens.tolist())

    def places(self, tokens: Ids) -> tuple[NDArray[np.float64], Ids]:
        """Count the shifts before each event; ons and offs have a pitch."""
        is_shift = (tokens >= events.SHIFT) & (tokens < events.VELOCITY)
        steps = np.where(is_shift, tokens - events.SHIFT + 1, 0)
        before = np.cumsum(steps) - steps
        pitch = np.where(tokens < events.SHIFT, tokens % events.N_PITCHES, -1)
        return before / events.STEPS_PER_SECOND, pitch

    def within(self, tokens: Ids, *, seconds: float | None, n_prompt: int) -> Ids:
        """Shorten the last wait to the seconds that were left; `forbid` lets none come after it."""
        new = tokens[n_prompt:]
        waits = np.flatnonzero((new >= events.SHIFT) & (new < events.VELOCITY))
        if seconds is None or not len(waits):
            return tokens
        steps = int((new[waits] - events.SHIFT + 1).sum())
        beyond = max(0, steps - round(seconds * events.STEPS_PER_SECOND))
        cut = tokens.copy()
        cut[n_prompt + waits[-1]] -= beyond
        return cut

    def forbid(self, batch: int, *, seconds: float | None, n_prompt: int) -> Forbid:
        """Rule out the impossible, and all but END after so many seconds of new music."""
        return PossibleEvents(batch, seconds=seconds, n_prompt=n_prompt)


class ChoraleGrid(Representation):
    """Four-part chorales on a grid of 16ths; see chorales.py."""

    name = "chorales"
    vocabulary = tuple(chorales.vocabulary())
    alignment = chorales.TOKENS_PER_BAR
    voices = ((1, 4),)
    # 16th in the quarter; 16th in a bar of four quarters, counted from the piece's start.
    metre = ((4, 4), (4, 16))
    length_unit = "16th steps"
    repeats_after = chorales.N_VOICES  # a voice holds its note

    def tokens(self, piece: Piece) -> Ids:
        """Serialise the grid."""
        return chorales.encode_grid(piece.content)

    def onsets(self, tokens: Ids) -> NDArray[np.bool_]:
        """Mark where a voice takes a new pitch."""
        return chorales.onsets(chorales.decode_grid(tokens)).reshape(-1)[: len(tokens)]

    def augment(self, piece: Piece, settings: Augmentation, generator: torch.Generator) -> Piece:
        """Transpose the chorale."""
        return Piece(piece.name, transpose_grid(piece.content, settings, generator))

    def prompt(self, primer: pretty_midi.PrettyMIDI, *, name: str) -> Ids:
        """Read the primer as a grid."""
        return chorales.encode_grid(chorales.midi_to_grid(primer, name=name))

    def n_tokens(self, *, seconds: float | None, length: int | None) -> int:
        """Count four tokens a 16th."""
        if length is not None:
            return length * chorales.N_VOICES
        assert seconds is not None
        return max(1, round(seconds / chorales.SECONDS_PER_STEP)) * chorales.N_VOICES

    def to_midi(self, tokens: Ids) -> pretty_midi.PrettyMIDI:
        """Sing the grid."""
        return chorales.grid_to_midi(chorales.decode_grid(tokens))

    def places(self, tokens: Ids) -> tuple[NDArray[np.float64], Ids]:
        """Take the token's 16th and pitch; rests have none."""
        step = np.arange(len(tokens)) // chorales.N_VOICES
        pitch = chorales.decode_grid(tokens).reshape(-1)[: len(tokens)]
        return step * chorales.SECONDS_PER_STEP, pitch


class PossibleEvents:
    """Which events may come next: those that would say nothing, or contradict, are ruled out.

    Off only for a sounding pitch, after a velocity only an on, after a shift of less than a second
    no further shift, after an on no off in the same instant, and none but END once `seconds` of
    new music have been written. An on of a sounding pitch is left to the model, though `encode`
    writes an off before it: `decode` strikes the key anew. Ruled out, it would push the mass of a
    model that forgets its offs onto keys that no piano has, until every key is held. So it is with
    waits beyond `seconds`, which would crowd notes into their last instant: `within` cuts them.

    Called with all events so far, int64 [B, t], t growing; reads each event once.
    """

    def __init__(self, batch: int, *, seconds: float | None = None, n_prompt: int = 0) -> None:
        self.limit = None if seconds is None else round(seconds * events.STEPS_PER_SECOND)
        self.n_prompt = n_prompt
        self.n_read = 0
        self.sounding = torch.zeros(batch, events.N_PITCHES, dtype=torch.bool)
        self.struck = torch.zeros(batch, dtype=torch.bool)  # an on in this instant
        self.steps = torch.zeros(batch, dtype=torch.int64)  # of new music
        self.last = torch.full((batch,), -1)

    def __call__(self, values: Tensor) -> Tensor:
        """Events so far, int64 [B, t] -> True for what may not come next, bool [B, V]."""
        self._to(values.device)
        for index in range(self.n_read, values.shape[1]):
            self._read(values[:, index], new=index >= self.n_prompt)
        self.n_read = values.shape[1]
        size = (len(values), events.VOCABULARY_SIZE)
        forbidden = torch.zeros(size, dtype=torch.bool, device=values.device)  # [B, V]
        forbidden[:, events.NOTE_OFF : events.SHIFT] = ~self.sounding | self.struck[:, None]
        short = (self.last >= events.SHIFT) & (self.last < events.VELOCITY - 1)
        forbidden[:, events.SHIFT : events.VELOCITY] = short[:, None]
        after_velocity = (self.last >= events.VELOCITY) & (self.last < events.END)
        forbidden[:, events.NOTE_OFF :] |= after_velocity[:, None]
        if self.limit is not None:
            over = self.steps >= self.limit
            forbidden[:, : events.END] |= over[:, None]
            forbidden[:, events.END] &= ~over
        return forbidden

    def _to(self, device: torch.device) -> None:
        for name in ("sounding", "struck", "steps", "last"):
            setattr(self, name, getattr(self, name).to(device))

    def _read(self, event: Tensor, *, new: bool) -> None:
        """Follow one event a row, int64 [B], without waiting for the device."""
        is_note = event < events.SHIFT
        is_on = event < events.NOTE_OFF
        is_shift = (event >= events.SHIFT) & (event < events.VELOCITY)
        pitch = torch.where(is_note, event % events.N_PITCHES, 0)[:, None]
        before = self.sounding.gather(1, pitch)
        after = torch.where(is_note[:, None], is_on[:, None], before)
        self.sounding = self.sounding.scatter(1, pitch, after)
        self.struck = (self.struck | is_on) & ~is_shift
        if new:
            self.steps = self.steps + torch.where(is_shift, event - events.SHIFT + 1, 0)
        self.last = event


REPRESENTATIONS: dict[str, Representation] = {
    kind.name: kind for kind in (PerformanceEvents(), ChoraleGrid())
}
"""By the name under which a checkpoint remembers its own."""
