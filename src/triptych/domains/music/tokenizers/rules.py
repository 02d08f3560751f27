"""Rules of sampled tokens: grammars of tokenizers, permitted pitches, no parallels."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from triptych.domains.music.conditions import (
    TEXTBOOK,
    ConstraintOptions,
    parse_range,
    parse_scale,
)
from triptych.domains.music.notes import SILENT, Ids
from triptych.errors import UserError

PERFECT = {"fifths": 7, "octaves": 0}
"""Intervals in semitones, modulo 12, that two voices should not keep while both move."""


class Grammar(ABC):
    """Rule of forbidden ids that reads each id once and never waits for the device.

    n_prompt: number of ids at the start that belong to the prompt.
    """

    state: dict[str, Tensor]
    """What is known of the ids so far, one row each."""
    tables: dict[str, Tensor]
    """What is known of each id."""

    def __init__(self, n_prompt: int) -> None:
        self.n_prompt, self.n_read, self.state, self.tables = n_prompt, 0, {}, {}

    def __call__(self, values: Tensor) -> Tensor:
        """Mark the ids that may not come next, bool [B, V].

        values: all ids so far, int64 [B, t]; t grows from call to call, and each is read once.
        """
        for tensors in (self.state, self.tables):
            tensors.update({name: tensor.to(values.device) for name, tensor in tensors.items()})
        for index in range(self.n_read, values.shape[1]):
            self.read(values[:, index], new=index >= self.n_prompt)
        self.n_read = values.shape[1]
        return self.forbidden()

    @abstractmethod
    def read(self, token: Tensor, *, new: bool) -> None:
        """Update the state by one id per row, int64 [B]; new: it follows the prompt."""

    @abstractmethod
    def forbidden(self) -> Tensor:
        """Mark the ids that may not come next, bool [B, V]."""


class PermittedPitches:
    """Forbids notes outside a scale, and outside the range of the voice that plays them.

    pitches: MIDI pitch of the note that each id begins, SILENT for none: [V]. voices: usual range
    of each voice by name; empty for a single part. Raises UserError for usual ranges without
    voices, and where no pitch is left.
    """

    def __init__(
        self, options: ConstraintOptions, pitches: Ids, voices: dict[str, tuple[int, int]]
    ) -> None:
        classes = range(12) if options.scale is None else parse_scale(options.scale)
        is_note = pitches != SILENT  # [V]
        known = pitches[is_note].min(), pitches[is_note].max()
        spans = dict.fromkeys(voices or ("piano",), known)
        if options.ranges == TEXTBOOK:
            if not voices:
                raise UserError("ranges is textbook; expected 48-84, as this music has no voices")
            spans = voices
        elif options.ranges is not None:
            spans = dict.fromkeys(spans, parse_range(options.ranges))
        permitted = []
        for name, (low, high) in spans.items():
            fits = (low <= pitches) & (pitches <= high) & np.isin(pitches % 12, [*classes])
            if not fits[is_note].any():
                raise UserError(
                    f"no pitch is left to the {name.lower()}: none from {low} to {high} is in the "
                    f"scale {options.scale or 'of all notes'} and in the model, which has "
                    f"{known[0]} to {known[1]}"
                )
            permitted.append(fits | ~is_note)
        self.forbidden = ~torch.from_numpy(np.stack(permitted))  # [voices, V]

    def __call__(self, values: Tensor) -> Tensor:
        self.forbidden = self.forbidden.to(values.device)
        voice = values.shape[1] % len(self.forbidden)
        return self.forbidden[voice].expand(len(values), -1)  # [B, V]


class NoParallels:
    """Forbids parallel fifths and octaves as `statistics.voice_leading` defines them.

    A voice may not move to a pitch that completes a parallel with a voice above it, which has moved
    in the same step. So the voices further down give way.

    pitches: MIDI pitch of each id, SILENT for a rest: [V].
    """

    def __init__(self, pitches: Ids, n_voices: int) -> None:
        self.pitches, self.n_voices = torch.from_numpy(pitches), n_voices

    def __call__(self, values: Tensor) -> Tensor:
        batch, length = values.shape
        self.pitches = new = self.pitches.to(values.device)  # [V]
        voice = length % self.n_voices
        begin = length - voice  # of this step
        forbidden = values.new_zeros(batch, len(new), dtype=torch.bool)  # [B, V]
        if begin == 0 or voice == 0:
            return forbidden
        step_before = new[values[:, begin - self.n_voices : begin]]  # [B, voices]
        above, above_before = new[values[:, begin:]], step_before[:, :voice]  # [B, voice]
        before = step_before[:, voice, None]  # [B, 1]
        motion = _motion(above_before, above).unsqueeze(2) * _motion(before, new).unsqueeze(1)
        for interval in PERFECT.values():
            was = ((above_before - before) % 12 == interval).unsqueeze(2)  # [B, voice, 1]
            is_now = (above.unsqueeze(2) - new) % 12 == interval  # [B, voice, V]
            forbidden = forbidden | ((motion > 0) & was & is_now).any(1)
        return forbidden


def _motion(before: Tensor, after: Tensor) -> Tensor:
    """Return the difference of two pitches, 0 where one of them is a rest."""
    return torch.where((before == SILENT) | (after == SILENT), 0, after - before)
