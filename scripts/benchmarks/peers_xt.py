"""x-transformers, with its flash attention switched on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def decoder(vocabulary: int, length: int, *, d_model: int, n_layers: int, n_heads: int) -> Any:
    """A decoder-only model: tokens [B, L] -> logits [B, L, V]."""
    from x_transformers import Decoder, TransformerWrapper

    stack = Decoder(
        dim=d_model,
        depth=n_layers,
        heads=n_heads,
        attn_dim_head=d_model // n_heads,
        attn_flash=True,
        verbose=False,
    )
    return TransformerWrapper(num_tokens=vocabulary, max_seq_len=length, attn_layers=stack)


def generate(model: nn.Module, batch: int, length: int) -> Tensor:
    """Greedy tokens after one start token, with its cache: [B, length]."""
    from x_transformers import AutoregressiveWrapper

    device = next(model.parameters()).device
    start = torch.zeros(batch, 1, dtype=torch.int64, device=device)
    with torch.inference_mode():
        return AutoregressiveWrapper(model).generate(start, length, temperature=0.0, cache_kv=True)


class XSeq2Seq(nn.Module):
    """An encoder and a decoder with cross-attention."""

    def __init__(
        self,
        vocabulary: int,
        length: int,
        *,
        d_model: int,
        n_layers: int,
        n_heads: int,
        d_ff: int,
        padded: bool,
    ) -> None:
        super().__init__()
        from x_transformers import Decoder, Encoder, TransformerWrapper

        self.padded = padded
        stack: dict[str, Any] = {
            "dim": d_model,
            "depth": n_layers,
            "heads": n_heads,
            "attn_dim_head": d_model // n_heads,
            "attn_flash": True,
            "ff_mult": d_ff // d_model,
            "verbose": False,
        }
        wrapper: dict[str, Any] = {"num_tokens": vocabulary, "max_seq_len": length}
        self.encoder = TransformerWrapper(
            **wrapper, return_only_embed=True, attn_layers=Encoder(**stack)
        )
        self.decoder = TransformerWrapper(
            **wrapper, attn_layers=Decoder(cross_attend=True, **stack)
        )

    def forward(self, source: Tensor, padding: Tensor, target: Tensor) -> Tensor:
        """source and target [B, L], padding [B, L] True on padding -> logits [B, L, V]."""
        seen = ~padding if self.padded else None
        memory = self.encoder(source, mask=seen, return_embeddings=True)
        return self.decoder(target, context=memory, context_mask=seen)
