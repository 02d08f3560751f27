"""What the inputs of a model of music are told of the tokens before, beside the last one."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych.core.models.base import Condition, Conditioner


@dataclass(frozen=True)
class History:
    """What decoding keeps of a piece."""

    values: Tensor
    """Tokens so far, int64 [B, L]."""


class HistoryConditioner(Conditioner):
    """Adds to the inputs a linear map of numbers that follow from the tokens before.

    The map starts at zero, so that a trained model can get it too.
    """

    def __init__(self, n_numbers: int, d_model: int) -> None:
        super().__init__()
        self.proj = nn.Linear(n_numbers, d_model, bias=False)
        nn.init.zeros_(self.proj.weight)

    def start(self, condition: Condition, batch: int, length: int) -> History:
        empty = torch.zeros(batch, length, dtype=torch.int64, device=self.proj.weight.device)
        return History(empty)  # [B, L]

    def read(self, values: Tensor, positions: Tensor, kept: History) -> Tensor:
        """Keep the values before positions [P], int64 [B, P]; return all so far: [B, L]."""
        # What position 0 writes, position 1 replaces.
        return kept.values.index_copy_(1, (positions - 1).clamp(min=0), values)
