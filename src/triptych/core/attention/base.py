"""Interface of the attention variants: a config that builds a layer, and the layer.

Sizes in shape comments: B batch, L positions, K keys, H heads, E width of a head, D width of the
model, S cache slots, P positions of one step, T period of the relative vectors
(`MaskPattern.query_period`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from triptych.core import generation_order as orders
from triptych.core.attention.context import NO_CONTEXT, ForwardContext, StepContext
from triptych.core.positions import RotaryEmbedding

LayerCache = dict[str, Tensor]
"""Cache of one layer: tensors only, B first, shapes fixed while decoding."""
KVCache = list[LayerCache]
"""Cache of a stack: one dict of tensors per layer."""


class Example(NamedTuple):
    """A small setting of a variant, on which the contract tests run."""

    config: AttentionConfig
    shape: tuple[int, ...]
    causal: bool = True


@dataclass(frozen=True)
class AttentionConfig(ABC):
    """Settings of one variant, in the variant's own file."""

    supports_rotary: ClassVar[bool] = True
    """Whether rotary positions may rotate its queries; False where a learned bias reads them."""

    @abstractmethod
    def build(
        self, d_model: int, n_heads: int, shape: tuple[int, ...], causal: bool
    ) -> SelfAttention:
        """Make the attention of one layer.

        shape: extent of each axis of the sequence, slowest first: (2048,) for text and music,
        (32, 32, 3) for an RGB image.
        `TransformerConfig` sets `dropout` and `rotary` of the layer afterwards.
        Raises ValueError where the variant cannot serve such a sequence.
        """

    def order_of(self, shape: tuple[int, ...]) -> orders.GenerationOrder:
        """Order of generation of this variant on a grid of this shape."""
        return orders.raster(shape)

    @classmethod
    def examples(cls) -> list[Example]:
        """Small settings that reach each border of the variant, for the contract tests."""
        return [Example(cls(), (13,))]


class SelfAttention(nn.Module, ABC):
    """Attention of a sequence to itself; one class for training and for decoding.

    Invariant: stepping t = 0..L-1 gives exactly `forward(x)[:, t]`; so does `prefill` of the first
    P positions and then steps. `forward` is compared with the definition, `reference`.
    """

    dropout: float = 0.0
    """Share of the attention weights that training drops; `reference` drops none."""
    uses_token_ids: bool = False
    """Whether the contexts must hold token ids."""
    rotary: RotaryEmbedding | None
    """Rotates queries and keys by their positions; None for no rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = None

    @abstractmethod
    def forward(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """Attention over whole sequences: x [B, L, D] -> [B, L, D].

        A query without a visible key gets zeros from the attention, never NaN.
        """

    @abstractmethod
    def reference(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """The same as `forward`, computed slowly from the definition."""

    @abstractmethod
    def init_cache(self, batch: int, max_length: int, lookahead: int = 0) -> LayerCache:
        """Storage to decode at most `max_length` positions of `batch` sequences.

        lookahead: number of positions that a step takes after its first one, or goes back.
        """

    @abstractmethod
    def prefill(self, x: Tensor, cache: LayerCache, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """Positions 0..P-1 at once into an empty cache: x [B, P, D] -> [B, P, D].

        Raises ValueError for a context with padding, which prefill does not support.
        """

    @abstractmethod
    def step(self, x: Tensor, cache: LayerCache, context: StepContext) -> Tensor:
        """One position, or P consecutive ones: x [B, P, D] -> [B, P, D].

        They may begin before the last one taken, which is then overwritten. Both only as far as
        the lookahead of the cache allows.
        """

    @abstractmethod
    def step_context(self, positions: Tensor, cache: LayerCache) -> StepContext:
        """Context of the step at consecutive positions int64 [P], for all layers of one key.

        With leading axes [..., P] the contexts of several steps at once.
        """

    def cache_view(self, cache: LayerCache, length: int) -> LayerCache:
        """Views of the part of the cache that holds the first `length` positions."""
        return cache

    def sharing_key(self) -> Hashable:
        """Layers with the same key and caches of the same sizes share their step contexts."""
        return self
