"""Melody that a model accompanies: of a piece, of a window, and what a token gets from it.

A melody has one pitch or a rest per step of a grid of time. Of a performance it is the skyline: in
each 100 ms the highest pitch that sounds at any time in them (skyline algorithm, Uitdenbogerd and
Zobel 1998; grid of Music Transformer, Huang et al. 2018). Of a chorale it is the soprano, one pitch
per sixteenth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from triptych.core.models.base import Condition, Conditioner
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import SinusoidalEmbedding, exact
from triptych.core.state import Memory
from triptych.domains.music.notes import Ids, Score
from triptych.domains.music.tokenizers.base import MELODY_REST, MelodicTokenizer
from triptych.errors import UserError

PADDING = -1
"""Fills melodies, and windows of pieces, of unequal length; no id and no pitch is below 0."""
CACHED_PIECES = 1024
"""Pieces whose melodies are kept, with their ids: about 50 MB of performances."""


@dataclass(frozen=True)
class WindowMelody:
    """Reads the melody that a model is given for a window of a piece.

    Its steps count from the beginning of the window, so that the model knows in which step a token
    lies; each has the highest pitch that sounds in it. It has `tokenizer.melody_steps` steps, fewer
    at the end of the piece and at least one: in sampling it is not known how long the window will
    last, so that it does not depend on that in training either.
    """

    tokenizer: MelodicTokenizer
    length: int
    """Length of a window, in tokens."""

    def of_score(self, score: Score) -> Ids:
        """Return the melody of a whole piece: int64 [U].

        Raises UserError for a file without notes and for pitches outside the tokenizer's range.
        """
        melody = self.tokenizer.melody(self.tokenizer.encode(self.tokenizer.from_midi(score)))
        pitches = melody[melody != MELODY_REST]
        lowest, highest = self.tokenizer.pitch_range
        if not len(pitches) or pitches.min() < lowest or pitches.max() > highest:
            has = f"from {pitches.min()} to {pitches.max()}" if len(pitches) else "of rests alone"
            raise UserError(
                f"{score.name} has a melody {has}; expected MIDI pitches from {lowest} to {highest}"
            )
        return melody

    def of_window(self, tokens: Ids, start: int, semitones: int = 0) -> Ids:
        """Return the melody of the window from token `start` of a piece, transposed: int64 [K]."""
        melody = _melody_of(self.tokenizer, tokens.tobytes(), tokens.dtype.str)
        pitches = self.part(melody, tokens[:start].astype(np.int64)).astype(np.int64)
        return np.where(pitches == MELODY_REST, MELODY_REST, pitches + semitones)

    def part(self, melody: NDArray[Any], before: Ids) -> NDArray[Any]:
        """Return the part of a piece's melody for the window that follows the tokens `before`."""
        step = self.tokenizer.melody_step
        first = int(self.tokenizer.durations[before].sum())
        pitches = melody[first : first + step * self.tokenizer.melody_steps(self.length)]  # [U]
        missing = -len(pitches) % step if len(pitches) else step
        pitches = np.pad(pitches, (0, missing), constant_values=MELODY_REST)  # whole steps
        sounding = np.where(pitches == MELODY_REST, -1, pitches.astype(np.int64))
        highest = sounding.reshape(-1, step).max(1)  # [K]
        return np.where(highest < 0, MELODY_REST, highest)

    def condition(self, model: DecoderOnly, melody: Ids, before: Tensor) -> Condition:
        """Return the condition of a window that follows the tokens before, int64 [B, t]."""
        rows = [self.part(melody, row) for row in before.cpu().numpy()]
        return model.condition(padded(rows).to(before.device))


@lru_cache(maxsize=CACHED_PIECES)
def _melody_of(tokenizer: MelodicTokenizer, tokens: bytes, dtype: str) -> NDArray[np.uint8]:
    """Return the melody of a whole piece from the bytes of its ids; all its windows share it."""
    melody = tokenizer.melody(np.frombuffer(tokens, dtype).astype(np.int64)).astype(np.uint8)
    melody.flags.writeable = False
    return melody


def padded(melodies: Sequence[Ids]) -> Tensor:
    """Return melodies as one tensor, int64 [B, K], with PADDING after the end of each."""
    rows = [torch.from_numpy(melody.astype(np.int64)) for melody in melodies]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)


@dataclass(frozen=True)
class Alignment:
    """What decoding keeps of the times of its positions."""

    times: Tensor
    """Of the positions so far: int64 [B, L]."""
    steps: Tensor
    """The memory of each step of the melody, then zeros: [B, K + 1, D]."""


class MelodyConditioner(Conditioner):
    """The memory of a melody, and what a token gets from the step of it in which the token lies.

    The time of position i is the sum of the durations of values 0 to i-1, in steps of the melody.
    It gives sinusoids, as the encoder's steps have them, and a linear map of the memory at its
    step, zeros at first. Cross-attention reads the other steps; from the sinusoids alone it learns
    which ones are near only after thousands of updates.

    encoder: of the symbols of a melody. durations: int64 [V], of each token. step: duration of a
    step of the melody.
    """

    def __init__(
        self, encoder: SequenceEncoder, durations: Tensor, step: int, d_model: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("durations", durations, persistent=False)  # [V]
        self.step = step
        self.encoding = SinusoidalEmbedding(d_model)
        self.proj = nn.Linear(d_model, d_model, bias=False)
        nn.init.zeros_(self.proj.weight)

    durations: Tensor

    def forward(self, melody: Tensor) -> Condition:
        """Return the condition of melodies int64 [B, K] of `padded`."""
        padding = melody == PADDING
        real = ~padding
        features = self.encoder(melody.masked_fill(padding, MELODY_REST), real)  # [B, K, D]
        return Condition(memory=Memory(features, real))

    def start(self, condition: Condition, batch: int, length: int) -> Alignment:
        assert condition.memory is not None
        steps, real = condition.memory.features, condition.memory.real
        if real is not None:
            steps = steps.masked_fill(~real.unsqueeze(-1), 0)
        # Zeros for padding and for all times after the end.
        steps = nn.functional.pad(steps, (0, 0, 0, 1))  # [B, K + 1, D]
        return Alignment(self.durations.new_zeros(batch, length), steps)

    def first_vectors(self, values: Tensor, kept: Alignment) -> Tensor:
        times = nn.functional.pad(self.durations[values].cumsum(1), (1, 0))  # [B, P + 1]
        kept.times[:, : times.shape[1]] = times
        return self._at(times, kept.steps)

    def step_vectors(self, values: Tensor, positions: Tensor, kept: Alignment) -> Tensor:
        before = kept.times.index_select(1, positions[:1] - 1)  # [B, 1]
        times = before + self.durations[values].cumsum(1)  # [B, P]
        kept.times.index_copy_(1, positions, times)
        return self._at(times, kept.steps)

    def _at(self, times: Tensor, steps: Tensor) -> Tensor:
        """Return the vectors at times int64 [B, P]: [B, P, D]."""
        index = (times // self.step).clamp(max=steps.shape[1] - 1)  # [B, P]
        here = steps.gather(1, index.unsqueeze(-1).expand(-1, -1, steps.shape[2]))  # [B, P, D]
        vectors: Tensor = self.proj(here) + self.encoding(exact(times) / self.step).to(here.dtype)
        return vectors
