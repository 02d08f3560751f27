"""Length penalty of a beam search: by what the log p of a hypothesis is divided."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triptych.errors import UserError


@dataclass(frozen=True)
class LengthPenalty:
    """Divisor of a hypothesis's log p, by its length in tokens with the end token.

    none: 1. average: length. gnmt: ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14 without
    the coverage term; Vaswani et al. 2017 use alpha 0.6).
    """

    name: Literal["none", "average", "gnmt"] = "gnmt"
    """Formula."""
    alpha: float = 0.6
    """Exponent of `gnmt`, at least 0."""

    @classmethod
    def parse(cls, text: str) -> LengthPenalty:
        """The penalty that an option names: 0 or none, 1 or average, gnmt:ALPHA.

        Raises UserError for other texts.
        """
        if text in ("0", "none"):
            return cls("none")
        if text in ("1", "average"):
            return cls("average")
        name, _, alpha = text.partition(":")
        with suppress(ValueError):
            if name == "gnmt" and 0 <= float(alpha) < math.inf:
                return cls("gnmt", float(alpha))
        raise UserError(
            "length_penalty must be 0 (none), 1 (average) or gnmt:ALPHA with ALPHA at least 0, "
            f"such as gnmt:0.6, got {text}"
        )

    def __str__(self) -> str:
        return f"gnmt:{self.alpha:g}" if self.name == "gnmt" else self.name

    def __call__(self, length: Tensor) -> Tensor:
        """The divisor at each length, float64, at least 1, not decreasing in the length."""
        if self.name == "average":
            return length.double()
        if self.name == "gnmt":
            return ((5 + length.double()) / 6) ** self.alpha
        return torch.ones_like(length, dtype=torch.float64)
