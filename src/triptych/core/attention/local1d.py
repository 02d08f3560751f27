"""Local 1-D attention: runs of queries over their own run and a memory before it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from triptych.core.attention.backends.dispatch import attend
from triptych.core.attention.backends.spans import Reach
from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.mask import MaskPattern
from triptych.core.attention.multihead import MultiHeadAttention


@dataclass(frozen=True)
class Local1D(AttentionConfig):
    """Runs of positions read their own run and some positions before it.

    Image Transformer (Parmar et al. 2018), section 3.3, local 1D; causal only.
    """

    block: int = 256
    """Length of a run of queries, in positions."""
    memory: int = 256
    """How many positions before its run a query reads, in positions."""

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
    """Keys of the query's own run and of `memory` positions before it, none later."""

    def __init__(self, block: int, memory: int) -> None:
        super().__init__()
        self.block = block
        self.memory = memory

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        start = query // self.block * self.block
        return (key <= query) & (key >= start - self.memory)

    def n_slots(self, max_length: int, ahead: int = 0) -> int:
        return min(self.block + self.memory + ahead, max_length)

    def kind(self) -> Hashable:
        return type(self), self.block, self.memory

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, dropout: float = 0.0
    ) -> Tensor:
        reach = Reach(before=self.memory, after=0, run=self.block)
        return attend(q, k, v, reach, padding=padding, dropout=dropout)
