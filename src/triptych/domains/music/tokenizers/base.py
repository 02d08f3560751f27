"""Interface of the music tokenizers: everything that differs between events and chorales.

Windows, batches, the model and sampling know tokens only. A new tokenizer is a subclass in a file
of this folder; a source of pieces names the tokenizer that it uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.music.augmentation import Augmentation
from triptych.domains.music.midi import ParsedMidi

if TYPE_CHECKING:
    import pretty_midi

Ids: TypeAlias = NDArray[np.int64]


class MusicTokenizer(ABC):
    """Writes pieces as token ids and turns any sequence of ids into music.

    Content is what a source reads and the tokenizer encodes: `Notes` for events, a grid of pitches
    for chorales.
    """

    name: ClassVar[str]
    """Name of the tokenizer in a checkpoint."""
    symbols: ClassVar[tuple[str, ...]]
    """Name of each id, in order."""
    end: ClassVar[int | None] = None
    """Id of the end of a piece; None where pieces have no end mark."""
    bar: ClassVar[int] = 1
    """Tokens per bar: windows start at multiples of it, so that a position implies its voice and
    its place in the bar; 1 where tokens have no meter."""
    voice_cycles: ClassVar[tuple[tuple[int, int], ...]] = ()
    """(divide, modulo) of a position that give its voice."""
    meter_cycles: ClassVar[tuple[tuple[int, int], ...]] = ()
    """(divide, modulo) of a position that give its place in the meter."""
    repeat_lag: ClassVar[int | None] = None
    """Distance, in tokens, at which most tokens repeat; None where they do not."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return len(self.symbols)

    @property
    def vocabulary(self) -> dict[str, Any]:
        """Description of the ids for a checkpoint, JSON types only."""
        return {"tokenizer": self.name, "symbols": list(self.symbols)}

    @abstractmethod
    def from_midi(self, midi: ParsedMidi, *, name: str) -> Any:
        """Return the content of a MIDI file; raises UserError, with its name, where it has none."""

    @abstractmethod
    def encode(self, content: Any) -> Ids:
        """Return the ids of a piece, without an end mark."""

    @abstractmethod
    def to_midi(self, ids: Ids) -> pretty_midi.PrettyMIDI:
        """Return the music of any sequence of ids."""

    @abstractmethod
    def onsets(self, ids: Ids) -> NDArray[np.bool_]:
        """Mark the tokens of a piece at which a note begins."""

    @abstractmethod
    def seconds_and_pitches(self, ids: Ids) -> tuple[NDArray[np.float64], Ids]:
        """Return the time of each token of a piece in seconds, and its pitch, -1 for none."""

    @abstractmethod
    def n_tokens(self, *, seconds: float | None, length: int | None) -> int:
        """Return the largest number of new tokens for one of the two lengths of a sample.

        length: in the tokenizer's unit, events or sixteenths.
        """

    @abstractmethod
    def augment(self, content: Any, settings: Augmentation, generator: torch.Generator) -> Any:
        """Return a random variation of a training piece."""

    def tokens(self, content: Any) -> Ids:
        """Return the ids of a whole piece, its end mark included."""
        ids = self.encode(content)
        return ids if self.end is None else np.append(ids, self.end)

    def trim(self, ids: Ids, *, seconds: float | None, n_prompt: int) -> Ids:
        """Cut what was sampled after a prompt to `seconds` of new music."""
        return ids

    def constraint(
        self, batch: int, *, seconds: float | None, n_prompt: int
    ) -> LogitsConstraint | None:
        """Return a fresh rule of forbidden ids for one run of sampling; None for no rule."""
        return None
