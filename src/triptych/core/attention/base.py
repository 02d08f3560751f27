"""What every attention variant is: a config that builds it, and a module that trains and decodes.

Letters, for sizes only: B batch, L positions, K keys, H heads, E width of a head, D width of the
model, S kept slots, W slots read in one step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from triptych.core import generation_order as orders
from triptych.core.attention.context import Place
from triptych.core.positions import RotaryEmbedding

LayerCache = dict[str, Tensor]
"""What one layer keeps between steps: tensors only, B first, shapes fixed for the whole decode."""
KVCache = list[LayerCache]
"""What a model keeps between decoding steps: one dict of tensors per layer."""


class Example(NamedTuple):
    """A small setting of a variant, on which the contract tests run."""

    config: AttentionConfig
    shape: tuple[int, ...]
    causal: bool = True


@dataclass(frozen=True)
class AttentionConfig(ABC):
    """Settings of one variant; lives in the variant's own file, beside what it builds."""

    @abstractmethod
    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> SelfAttention:
        """Make one layer's attention.

        shape: extent of each axis of the sequence, slowest first: (2048,) for text and music,
        (32, 32, 3) for an RGB picture. The domain gives it once.
        Raises ValueError where the variant cannot serve such a sequence.
        """

    def order_of(self, shape: tuple[int, ...]) -> orders.GenerationOrder:
        """The order in which this variant's positions walk over a grid of this shape."""
        return orders.raster(shape)

    @classmethod
    def examples(cls) -> list[Example]:
        """Small settings that reach each border of the variant, for the contract tests."""
        return [Example(cls(), (13,))]


class SelfAttention(nn.Module, ABC):
    """Attention of a sequence to itself; one class for training and for decoding.

    Law: stepping t = 0..L-1 gives exactly `forward(x)[:, t]`; so does `prefill` of the first P
    positions and then steps. `reference` is the definition that judges `forward`.
    """

    dropout: float = 0.0
    """Share of the attention weights that training drops; none in use and in `reference`."""
    rotary: RotaryEmbedding | None = None
    """Rotates queries and keys by their positions; None for none."""
    reads_symbols: bool = False
    """Whether it must be told what stands at each position: `symbols`, int64 [B, L], -1 where
    nothing does. The others ignore it."""

    @abstractmethod
    def forward(
        self, x: Tensor, padding: Tensor | None = None, symbols: Tensor | None = None
    ) -> Tensor:
        """x [B, L, D], padding [B, L] True on padding -> [B, L, D].

        A query that may see no key at all gets zeros from the attention, never NaN.
        """

    @abstractmethod
    def reference(
        self, x: Tensor, padding: Tensor | None = None, symbols: Tensor | None = None
    ) -> Tensor:
        """The same as `forward`, computed slowly from the definition."""

    @abstractmethod
    def init_cache(self, batch: int, max_length: int, ahead: int = 0) -> LayerCache:
        """Storage for decoding at most `max_length` positions of `batch` sequences.

        ahead: a step takes so many positions more than one, or goes back by so many.
        """

    @abstractmethod
    def prefill(self, x: Tensor, state: LayerCache, symbols: Tensor | None = None) -> Tensor:
        """Positions 0..P-1 at once into an empty state: [B, P, D] -> [B, P, D]."""

    @abstractmethod
    def step(
        self,
        x: Tensor,
        position: Tensor,
        state: LayerCache,
        place: Place | None = None,
        symbols: Tensor | None = None,
    ) -> Tensor:
        """One position: x [B, 1, D], position int64 [] on the device -> [B, 1, D].

        Or several in a row: x [B, P, D], position int64 [P]. They may begin before the last one
        taken, over which they are then written. Both only as far as the state's `ahead` allows.
        place: what `place` or `places` gave for this position, where the caller has it already.
        """

    def narrow(self, state: LayerCache, length: int) -> LayerCache:
        """Views of what the first `length` positions need, so that a step reads no more."""
        return state

    def kind(self) -> Hashable:
        """Layers of the same kind, with states of the same sizes, share a `place`."""
        return self

    def place(self, position: Tensor, state: LayerCache) -> Place | None:
        """What a step at this position needs beside its input, for all layers of this kind."""
        return None

    def places(self, positions: Tensor, state: LayerCache) -> Sequence[Place | None]:
        """The `place` of each of some positions, int64 [R]; for steps with this very state."""
        return [self.place(position, state) for position in positions]
