"""Cross-attention: the decoder reads the encoder's output."""

from __future__ import annotations

from einops import rearrange
from torch import Tensor, nn

from triptych.core.attention.interface import LayerState
from triptych.core.attention.softmax import attend, head_width


class CrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another (Vaswani et al. 2017, 3.2.3).

    In decoding the keys and values of the memory are projected once per sentence (`remember`)
    and read in every step; their padding travels with them. A row whose memory is all padding
    gets zeros.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        head_width(d_model, n_heads)
        self.project_query = nn.Linear(d_model, d_model)
        self.project_memory = nn.Linear(d_model, 2 * d_model)
        self.project_out = nn.Linear(d_model, d_model)

    def remember(self, memory: Tensor, padding: Tensor | None = None) -> LayerState:
        """memory [B, K, D], padding [B, K] True on padding -> keys and values [B, H, K, E]."""
        k, v = rearrange(
            self.project_memory(memory), "b k (two h e) -> two b h k e", two=2, h=self.n_heads
        ).unbind(0)  # 2 x [B, H, K, E]
        state = {"memory_key": k, "memory_value": v}
        if padding is not None:
            state["memory_padding"] = padding
        return state

    def read(self, x: Tensor, state: LayerState) -> Tensor:
        """x [B, L, D] reads what `remember` kept -> [B, L, D]."""
        q = rearrange(self.project_query(x), "b l (h e) -> b h l e", h=self.n_heads)
        padding = state.get("memory_padding")
        mask = None if padding is None else ~padding[:, None, None, :]  # [B, 1, 1, K]
        y = attend(q, state["memory_key"], state["memory_value"], mask=mask)  # [B, H, L, E]
        out: Tensor = self.project_out(rearrange(y, "b h l e -> b l (h e)"))  # [B, L, D]
        return out

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        """x [B, L, D] reads memory [B, K, D], whose padding [B, K] is True -> [B, L, D]."""
        return self.read(x, self.remember(memory, padding))
