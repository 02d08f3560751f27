"""Cross-attention: the decoder reads the output of the encoder. Capture of attention weights."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from einops import rearrange
from torch import Tensor, nn

from triptych.core.attention.backends.dispatch import attend_by_sdpa, attention_weights
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.state import Memory, ProjectedMemory


class MemoryAttention(nn.Module, ABC):
    """Attention to a memory, which decoding projects once per sentence and reads in every step."""

    @abstractmethod
    def project_memory(self, memory: Memory) -> ProjectedMemory:
        """Keys and values of a memory [B, K, D], and its mask."""

    @abstractmethod
    def weights(self, x: Tensor, memory: ProjectedMemory) -> Tensor:
        """Attention weights without dropout, rows of sum 1: x [B, L, D] -> [B, H, L, K]."""


class CrossAttention(MemoryAttention):
    """Queries from one sequence, keys and values from another (Vaswani et al. 2017, 3.2.3).

    dropout: share of the attention weights that training drops.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model)
        self.kv_proj = nn.Linear(d_model, 2 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def project_memory(self, memory: Memory) -> ProjectedMemory:
        k, v = rearrange(
            self.kv_proj(memory.features), "b k (two h e) -> two b h k e", two=2, h=self.n_heads
        ).unbind(0)  # 2 x [B, H, K, E]
        return ProjectedMemory(k, v, memory.real)

    def forward(self, x: Tensor, memory: ProjectedMemory) -> Tensor:
        """Read the projected memory of B sentences: x [B, L, D], or [B N, L, D] -> the shape of x.

        The N hypotheses of a sentence are consecutive rows, and N times as many queries to one
        copy of its keys and values. A row whose memory is all padding gets zeros.
        """
        n = x.shape[0] // memory.keys.shape[0]
        q = rearrange(self.q_proj(x), "(b n) l (h e) -> b h (n l) e", n=n, h=self.n_heads)
        dropout = self.dropout if self.training else 0.0
        keys, values = memory.keys, memory.values  # [B, H, K, E]
        y = attend_by_sdpa(q, keys, values, real=memory.real, dropout=dropout)  # [B, H, N L, E]
        merged = rearrange(y, "b h (n l) e -> (b n) l (h e)", n=n)  # [B N, L, D]
        out: Tensor = self.out_proj(merged)
        return out

    def weights(self, x: Tensor, memory: ProjectedMemory) -> Tensor:
        """From the definition; rows add up to 0 where all of the memory is padding."""
        q = rearrange(self.q_proj(x), "b l (h e) -> b h l e", h=self.n_heads)
        mask = None if memory.real is None else memory.real[:, None, None, :]  # [B, 1, 1, K]
        return attention_weights(q, memory.keys, mask)


@dataclass
class CapturedAttention:
    """Attention weights, in the order in which the layers ran."""

    self_attention: list[Tensor] = field(default_factory=list)
    """Of self-attention: [B, H, L, L] per layer, queries before keys."""
    cross: list[Tensor] = field(default_factory=list)
    """Of cross-attention: [B, H, L, K] per layer."""


@contextmanager
def capture_attention(model: nn.Module) -> Iterator[CapturedAttention]:
    """Capture the weights of all attention below `model` in passes over whole sequences.

    The weights come from the definition (`MultiHeadAttention.weights`, `MemoryAttention.weights`).
    Memory grows with the square of the length for every layer and head: give one block of a large
    model. Decoding steps are not for capture: they would give cross-attention alone.
    """
    captured = CapturedAttention()

    def capture(layer: Any, arguments: tuple[Any, ...]) -> None:
        is_cross = isinstance(layer, MemoryAttention)
        kept = captured.cross if is_cross else captured.self_attention
        kept.append(layer.weights(*arguments[:2]).detach())

    with ExitStack() as hooks:
        for layer in model.modules():
            if isinstance(layer, MultiHeadAttention | MemoryAttention):
                hooks.enter_context(layer.register_forward_pre_hook(capture))
        yield captured
