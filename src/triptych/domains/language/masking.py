"""Masking of tokens (Devlin et al. 2018, section 3.1 and appendix A.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.domains.language.vocabulary import MASK, N_SPECIALS
from triptych.types import Checked, ClosedUnitInterval, OpenUnitInterval


@dataclass(frozen=True)
class MaskRates(Checked):
    """Shares of tokens that are predicted, and what the model reads in their place."""

    predicted: OpenUnitInterval = 0.15
    """Share of the tokens that are predicted, each drawn by itself; never special ids."""
    masked: ClosedUnitInterval = 0.8
    """Share of the predicted tokens that are read as [MASK]."""
    replaced: ClosedUnitInterval = 0.1
    """Share of the predicted tokens that are read as a random token; the others stay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masked + self.replaced > 1:
            raise ValueError(
                f"masked is {self.masked} and replaced is {self.replaced}; expected a sum of at "
                "most 1"
            )

    def apply(
        self, tokens: Tensor, known: range, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the tokens as the model reads them, and which of them are predicted, bool.

        tokens: int64 [...], with special ids, which are never predicted. known: ids of the text
        other than the unknown token, of which a random one is drawn.
        """
        which, kind = torch.rand((2, *tokens.shape), generator=generator)  # 2 x [...]
        predicted = (tokens >= N_SPECIALS) & (which < self.predicted)
        random = torch.randint(known.start, known.stop, tokens.shape, generator=generator)
        read = torch.where(predicted & (kind < self.masked), MASK, tokens)
        swapped = (kind >= self.masked) & (kind < self.masked + self.replaced)
        return torch.where(predicted & swapped, random, read), predicted
