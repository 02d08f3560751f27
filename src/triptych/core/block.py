"""One block of a stack: self-attention, optional cross-attention, feed-forward."""

from __future__ import annotations

from torch import Tensor, nn

from triptych.core.attention.base import LayerCache, SelfAttention
from triptych.core.attention.context import NO_CONTEXT, ForwardContext, StepContext
from triptych.core.attention.cross import CrossAttention
from triptych.core.norms import Residual


class Block(nn.Module):
    """Self-attention, optional cross-attention and feed-forward, each with its residual."""

    def __init__(
        self,
        *,
        attention: SelfAttention,
        attention_residual: Residual,
        feed_forward: nn.Module,
        feed_forward_residual: Residual,
        cross: CrossAttention | None = None,
        cross_residual: Residual | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_residual = attention_residual
        self.cross = cross
        self.cross_residual = cross_residual
        self.feed_forward = feed_forward
        self.feed_forward_residual = feed_forward_residual

    def forward(self, x: Tensor, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """x [B, L, D] -> [B, L, D]."""
        residual = self.attention_residual
        x = residual.add(x, self.attention(residual.sublayer_input(x), context))
        return self._after_attention(x, self._project_memory(context))

    def init_cache(
        self, batch: int, max_length: int, lookahead: int, context: ForwardContext
    ) -> LayerCache:
        """Storage of the attention, with keys and values of the context's memory."""
        cache = self.attention.init_cache(batch, max_length, lookahead)
        return cache | self._project_memory(context)

    def prefill(self, x: Tensor, cache: LayerCache, context: ForwardContext = NO_CONTEXT) -> Tensor:
        """Positions 0..P-1 at once: [B, P, D] -> [B, P, D]."""
        residual = self.attention_residual
        x = residual.add(x, self.attention.prefill(residual.sublayer_input(x), cache, context))
        return self._after_attention(x, cache)

    def step(self, x: Tensor, cache: LayerCache, context: StepContext) -> Tensor:
        """One position or several: [B, P, D] -> [B, P, D]; as in `SelfAttention.step`."""
        residual = self.attention_residual
        x = residual.add(x, self.attention.step(residual.sublayer_input(x), cache, context))
        return self._after_attention(x, cache)

    def _project_memory(self, context: ForwardContext) -> LayerCache:
        """Keys and values of the memory; empty without a memory or without cross-attention."""
        if context.memory is None or self.cross is None:
            return {}
        return self.cross.project_memory(context.memory, context.memory_padding)

    def _after_attention(self, x: Tensor, memory: LayerCache) -> Tensor:
        if self.cross is not None and self.cross_residual is not None:
            if "memory_key" not in memory:
                raise ValueError("a block with cross-attention needs a memory to read")
            residual = self.cross_residual
            x = residual.add(x, self.cross(residual.sublayer_input(x), memory))
        residual = self.feed_forward_residual
        return residual.add(x, self.feed_forward(residual.sublayer_input(x)))
