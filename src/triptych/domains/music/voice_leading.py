"""A term of the logits of chorales: how the interval between two voices goes on."""

import torch
from torch import Tensor, nn

from triptych.core.heads import PastTerm
from triptych.domains.music.notes import SILENT, Ids
from triptych.domains.music.tokenizers.rules import PERFECT

OCTAVE = 12


class VoiceLeading(PastTerm):
    """The sum, over the voices before it in a step, of a number for how their interval goes on.

    A voice sings a, then a'; a higher one b, then b'. For each a' that the voice may sing, the
    number depends on whether b' differs from b and on the intervals b - a and b' - a', modulo an
    octave: one of `numbers`, [2 x 12 x 12], 0 at first; for a lower voice b on a - b and a' - b'.
    It is 0 where one of them rests. Parallel fifths are one number for all voices, keys and
    heights; a decoder would have to learn them pitch by pitch.

    pitches: MIDI pitch of each id, SILENT for a rest: [V]. Voices sing in turn, the highest first,
    or in the orders int64 [B, voices] that `given` holds.
    """

    def __init__(self, pitches: Ids, n_voices: int) -> None:
        super().__init__()
        self.n_voices = n_voices
        self.reach = 2 * n_voices - 1
        self.register_buffer("pitches", torch.from_numpy(pitches), persistent=False)  # [V]
        # One axis, which weight decay leaves out: what never occurs needs a number far from 0.
        self.numbers = nn.Parameter(torch.zeros(2 * OCTAVE * OCTAVE))

    pitches: Tensor

    def forward(self, past: Tensor, positions: Tensor, given: Tensor | None = None) -> Tensor:
        return self.sums(self.numbers, past, positions, given)

    def parallels(self, past: Tensor, positions: Tensor, given: Tensor | None = None) -> Tensor:
        """Number of parallel fifths and octaves that each id would make: [B, P, V], as `forward`.

        The same fifth or octave between two voices, both of which move.
        """
        ones = torch.zeros_like(self.numbers).view(2, OCTAVE, OCTAVE)
        for interval in PERFECT.values():
            ones[1, interval, interval] = 1
        return self.sums(ones, past, positions, given)

    def sums(
        self, numbers: Tensor, past: Tensor, positions: Tensor, given: Tensor | None
    ) -> Tensor:
        """Sums of such numbers over the voices before, as `forward`."""
        n = self.n_voices
        sung = torch.cat([self.pitches, self.pitches.new_full((1,), SILENT)])[past]  # [B, P, R]
        own = sung[..., n - 1, None]  # [B, P, 1]
        other = sung[..., n:]  # [B, P, voices - 1], from the farthest voice to the nearest
        before = sung[..., : n - 1]  # [B, P, voices - 1], the same voices a step earlier
        apart = torch.arange(n - 1, 0, -1, device=past.device)  # [voices - 1]
        place = (positions % n).unsqueeze(1)  # [P, 1]
        rests = (own == SILENT) | (other == SILENT) | (before == SILENT)  # [B, P, voices - 1]
        left_out = rests | (apart > place)  # [B, P, voices - 1]
        sign = torch.ones_like(own)  # [B, P, 1]
        if given is not None:
            is_lower = given[:, (place - apart) % n] > given[:, place]  # [B, P, voices - 1]
            sign = torch.where(is_lower, -1, 1)
        row = (other != before) * OCTAVE + sign * (before - own) % OCTAVE  # [B, P, voices - 1]
        table = numbers.view(-1, OCTAVE)  # [24, 12]
        rows = nn.functional.embedding(row, table)  # [B, P, voices - 1, 12]
        rows = rows.masked_fill(left_out.unsqueeze(-1), 0)
        classes = torch.arange(OCTAVE, device=past.device)  # [12]
        signs = sign.unsqueeze(-1)  # [B, P, 1 or voices - 1, 1]
        interval = signs * (other.unsqueeze(-1) - classes) % OCTAVE  # [B, P, voices - 1, 12]
        by_class = rows.gather(-1, interval).sum(-2)  # [B, P, 12]
        by_id = by_class[..., self.pitches % OCTAVE]  # [B, P, V]
        return by_id.masked_fill(self.pitches == SILENT, 0)
