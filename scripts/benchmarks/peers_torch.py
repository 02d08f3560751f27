"""torch.nn's own Transformer: an encoder with a causal mask, and the encoder-decoder."""

from __future__ import annotations

from torch import Tensor, nn


class TorchDecoder(nn.Module):
    """nn.TransformerEncoder with a causal mask: what torch offers as a decoder-only stack."""

    def __init__(
        self, vocabulary: int, length: int, *, d_model: int, n_layers: int, n_heads: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model)
        self.positions = nn.Embedding(length, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, n_heads, 4 * d_model, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.stack = nn.TransformerEncoder(
            layer, n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False
        )
        self.logits = nn.Linear(d_model, vocabulary, bias=False)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    mask: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, L] -> logits [B, L, V]."""
        x = self.tokens(tokens) + self.positions.weight
        return self.logits(self.stack(x, mask=self.mask, is_causal=True))


class TorchSeq2Seq(nn.Module):
    """nn.Transformer, pre-norm, with embeddings and logits around it."""

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
        self.padded = padded
        self.source = nn.Embedding(vocabulary, d_model)
        self.target = nn.Embedding(vocabulary, d_model)
        self.positions = nn.Embedding(length, d_model)
        self.stack = nn.Transformer(
            d_model, n_heads, n_layers, n_layers, d_ff, 0.0, "gelu",
            batch_first=True, norm_first=True,
        )  # fmt: skip
        self.logits = nn.Linear(d_model, vocabulary, bias=False)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    mask: Tensor

    def forward(self, source: Tensor, padding: Tensor, target: Tensor) -> Tensor:
        """source and target [B, L], padding [B, L] True on padding -> logits [B, L, V]."""
        hidden = padding if self.padded else None
        y = self.stack(
            self.source(source) + self.positions.weight,
            self.target(target) + self.positions.weight,
            tgt_mask=self.mask,
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return self.logits(y)
