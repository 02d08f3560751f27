"""What a model of performances is told of the keys: which notes sound, and for how long."""

import torch
from torch import Tensor, nn

from triptych.domains.music.history import History, HistoryConditioner
from triptych.domains.music.notes import N_PITCHES, STEPS_PER_SECOND
from triptych.domains.music.tokenizers.key_events import NOTE_OFF, PAST, SHIFT


class HeldNotes(HistoryConditioner):
    """Tells the inputs the state of the keys.

    Position i gets the state after events 0 to i-1: for each pitch 1 where it sounds, and the
    logarithm of 1 + its age in tenths of a second. A note sounds from its note-on until the next
    note-off of its pitch. A decoder would have to look back for the note-on of everything that
    sounds and to add up the time since, also beyond the window of its attention.

    durations: int64 [V], of each event, in steps of 10 ms.
    """

    def __init__(self, durations: Tensor, d_model: int) -> None:
        super().__init__(2 * N_PITCHES, d_model)
        self.register_buffer("durations", durations, persistent=False)  # [V]

    durations: Tensor

    def first_vectors(self, values: Tensor, kept: History) -> Tensor:
        kept.values[:, : values.shape[1]] = values
        numbers, pitches = self._numbers(values)  # 2 x [B, P]
        state = numbers.new_zeros(*values.shape, N_PITCHES)  # [B, P, 128]
        state.scatter_(2, pitches.unsqueeze(2), numbers.unsqueeze(2))
        state = torch.where((values == PAST).unsqueeze(2), numbers.unsqueeze(2), state)
        state = nn.functional.pad(state, (0, 0, 1, 0)).cummax(1).values  # [B, P + 1, 128]
        positions = torch.arange(state.shape[1], device=values.device)  # [P + 1]
        return self._vectors(state, values, positions)  # [B, P + 1, D]

    def step_vectors(self, values: Tensor, positions: Tensor, kept: History) -> Tensor:
        played = self.read(values, positions, kept)  # [B, L]
        numbers, pitches = self._numbers(played)  # 2 x [B, L]
        index = torch.arange(played.shape[1], device=values.device)  # [L]
        read = (index < positions.unsqueeze(1)).unsqueeze(0)  # [1, P, L]
        numbers = numbers.unsqueeze(1) * read  # [B, P, L]
        pitches = pitches.unsqueeze(1).expand_as(numbers)  # [B, P, L]
        state = numbers.new_zeros(*numbers.shape[:2], N_PITCHES)  # [B, P, 128]
        state = state.scatter_reduce(2, pitches, numbers, "amax")
        last_past = (numbers * (played == PAST).unsqueeze(1)).amax(2, keepdim=True)  # [B, P, 1]
        return self._vectors(state.maximum(last_past), played, positions)  # [B, P, D]

    def _numbers(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Number and pitch of the events that change keys; 0 for others: two [B, P].

        Later events have higher numbers, note-ons odd ones. `PAST` lifts all keys.
        """
        order = torch.arange(2, 2 * values.shape[1] + 2, 2, device=values.device)  # [P]
        changes = (values < SHIFT) | (values == PAST)  # [B, P]
        numbers = (order + (values < NOTE_OFF)) * changes  # [B, P]
        return numbers, values % N_PITCHES * (values < SHIFT)

    def _vectors(self, state: Tensor, values: Tensor, positions: Tensor) -> Tensor:
        """Vectors [B, P, D] at positions [P]; state: number of each key's last event [B, P, 128].

        values: int64 [B, N], of which a position reads those before it.
        """
        times = nn.functional.pad(self.durations[values].cumsum(1), (1, 0))  # [B, N + 1]
        # An event lasts no time, so that it is at the time before it.
        onsets = times.gather(1, (state // 2 - 1).clamp(min=0).flatten(1)).view_as(state)
        ages = (times[:, positions].unsqueeze(2) - onsets) / STEPS_PER_SECOND  # [B, P, 128]
        sounds = state % 2  # [B, P, 128]
        features = torch.cat([sounds, sounds * torch.log1p(10 * ages)], dim=-1)  # [B, P, 256]
        vectors: Tensor = self.proj(features.to(self.proj.weight.dtype))  # [B, P, D]
        return vectors
