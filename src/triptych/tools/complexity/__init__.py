"""What layers and models cost: parameters, operations, paths and memory."""

from dataclasses import dataclass

from triptych.domains.options import CommandOptions
from triptych.types import IntAboveOne, PositiveInt

MAX_LENGTH = 32_768
"""Longest sequence; the kept tensors of full attention take many gigabytes beyond it."""


@dataclass(frozen=True, kw_only=True)
class CostOptions(CommandOptions):
    """Print what a model costs (parameters, operations and memory), and layers beside it.

    To compare its attention with, it prints what the kinds of layers of Vaswani et al. (2017),
    table 1, cost at the same width. The other settings are those of `triptych train`.
    """

    length: PositiveInt | None = None
    """Length of the sequence of the table; null for the longest one of a batch of the data."""
    window: IntAboveOne = 128
    """Largest number of positions that a query of local attention reads (r)."""
    kernel: IntAboveOne = 3
    """Width of the convolution (k)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is not None and self.length > MAX_LENGTH:
            raise ValueError(f"length must be at most {MAX_LENGTH}, got {self.length}")
