"""Local 1-D attention: blocks of queries over their own block and a memory before it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import KeySpan, MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention


@dataclass(frozen=True)
class Local1D(AttentionConfig):
    """Blocks of positions read their own block and some positions before it.

    Image Transformer (Parmar et al. 2018), section 3.3, local 1D; causal only.
    """

    block: int = 256
    """Length of a block of queries, in positions."""
    memory: int = 256
    """Length of the memory before the block, in positions."""

    def __post_init__(self) -> None:
        if self.block < 1 or self.memory < 0:
            raise ValueError(
                "local 1-D attention needs block >= 1 and memory >= 0, "
                f"got block {self.block} and memory {self.memory}"
            )

    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> MultiHeadAttention:
        if not causal:
            raise ValueError("local 1-D attention is causal; an encoder cannot use it")
        return MultiHeadAttention(d_model, n_heads, Local1DPattern(self.block, self.memory))

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(block=4, memory=4), (16,)),
            Example(cls(block=4, memory=6), (15,)),  # neither divides the length
            Example(cls(block=3, memory=0), (10,)),
            Example(cls(block=32, memory=8), (13,)),
            Example(cls(block=6, memory=6), (4, 3, 3)),
        ]


class Local1DPattern(MaskPattern):
    """Keys of the query's own block and of `memory` positions before it, none after the query."""

    def __init__(self, block: int, memory: int) -> None:
        super().__init__()
        self.block = block
        self.memory = memory

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        start = query // self.block * self.block
        return (key <= query) & (key >= start - self.memory)

    def key_span(self, first: int, stop: int, length: int) -> KeySpan:
        first_start, last_start = (q // self.block * self.block for q in (first, stop - 1))
        return KeySpan(
            max(0, first_start - self.memory), max(0, last_start - self.memory), first + 1, stop
        )

    def n_slots(self, max_length: int, lookahead: int = 0) -> int:
        return min(self.block + self.memory + lookahead, max_length)

    def sharing_key(self) -> Hashable:
        return type(self), self.block, self.memory
