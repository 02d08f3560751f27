"""One block of a stack: self-attention, cross-attention where there is a memory, feed-forward."""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from triptych.core.attention.base import LayerCache, SelfAttention
from triptych.core.attention.context import Place
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

    def forward(
        self,
        x: Tensor,
        padding: Tensor | None = None,
        remembered: LayerCache | None = None,
        symbols: Tensor | None = None,
    ) -> Tensor:
        """x [B, L, D], padding [B, L], remembered: keys and values of the memory -> [B, L, D].

        symbols [B, L]: as in `SelfAttention.reads_symbols`.
        """
        residual = self.attention_residual
        x = residual.after(x, self.attention(residual.before(x), padding, symbols))
        return self._rest(x, remembered)

    def prefill(self, x: Tensor, state: LayerCache, symbols: Tensor | None = None) -> Tensor:
        """Positions 0..P-1 at once: [B, P, D] -> [B, P, D]."""
        residual = self.attention_residual
        x = residual.after(x, self.attention.prefill(residual.before(x), state, symbols))
        return self._rest(x, state)

    def step(
        self,
        x: Tensor,
        position: Tensor,
        state: LayerCache,
        place: Place | None = None,
        symbols: Tensor | None = None,
    ) -> Tensor:
        """One position or several: [B, P, D] -> [B, P, D]; as in `SelfAttention.step`."""
        residual = self.attention_residual
        y = self.attention.step(residual.before(x), position, state, place, symbols)
        x = residual.after(x, y)
        return self._rest(x, state)

    def _rest(self, x: Tensor, remembered: LayerCache | None) -> Tensor:
        if self.cross is not None and self.cross_residual is not None:
            if remembered is None:
                raise ValueError("a block with cross-attention needs a memory to read")
            residual = self.cross_residual
            x = residual.after(x, self.cross.read(residual.before(x), remembered))
        residual = self.feed_forward_residual
        return residual.after(x, self.feed_forward(residual.before(x)))


def through(
    block: nn.Module,
    x: Tensor,
    padding: Tensor | None,
    memory: Tensor | None = None,
    memory_padding: Tensor | None = None,
    symbols: Tensor | None = None,
    *,
    recompute: bool,
) -> Tensor:
    """One block of a stack; with `recompute` only its input is kept for the backward pass.

    What was dropped is dropped again, for the state of the random numbers is kept too.
    """

    def run(x: Tensor) -> Tensor:
        y: Tensor = block(x, padding, remember(block, memory, memory_padding), symbols)
        return y

    if not recompute:
        return run(x)
    y: Tensor = checkpoint(run, x, use_reentrant=False)
    return y


def remember(
    block: nn.Module, memory: Tensor | None, memory_padding: Tensor | None
) -> LayerCache | None:
    """The block's keys and values of the memory, or None where there is none to read."""
    cross = block.cross
    if memory is None or not isinstance(cross, CrossAttention):
        return None
    return cross.remember(memory, memory_padding)
