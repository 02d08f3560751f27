"""The encoder-decoder model: a source sequence in, a target sequence out."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.embeddings import TokenEmbedding
from triptych.core.generation_order import raster
from triptych.core.transformer import Decoder, Encoder, State, TransformerConfig

SharedEmbeddings = Literal["all", "target", "none"]
"""Which of source embedding, target embedding and output are one matrix."""


class EncoderDecoder(nn.Module):
    """Encoder and decoder with cross-attention over token sequences (Vaswani et al. 2017).

    Both embeddings are scaled by sqrt(D); the output is linear without a bias and may share the
    target embedding's matrix, which is scaled in neither direction there (section 3.4).
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        *,
        source_embedding: TokenEmbedding,
        target_embedding: TokenEmbedding,
        positions: nn.Module,
        tie_output: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.positions = positions
        vocabulary, d_model = target_embedding.table.weight.shape
        self.output: nn.Module | None = (
            None if tie_output else nn.Linear(d_model, vocabulary, bias=False)
        )
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def build(
        cls,
        config: TransformerConfig,
        *,
        source_vocabulary: int,
        target_vocabulary: int,
        share_embeddings: SharedEmbeddings = "all",
        n_decoder_layers: int | None = None,
        max_length: int = 1024,
    ) -> EncoderDecoder:
        """Make the model from its sizes, with sinusoids as positions.

        share_embeddings: `all` shares one matrix between both embeddings and the output, `target`
        between the target's embedding and the output. max_length: the extent that attention
        variants are told, in tokens; full and relative attention also serve longer sequences.
        Raises ValueError for another value of share_embeddings, and for `all` with vocabularies of
        different sizes.
        """
        if share_embeddings not in ("all", "target", "none"):
            raise ValueError(f"share_embeddings is all, target or none, got {share_embeddings}")
        if share_embeddings == "all" and source_vocabulary != target_vocabulary:
            raise ValueError(
                "sharing all embeddings needs one vocabulary for both sides, got "
                f"{source_vocabulary} and {target_vocabulary} types"
            )
        source = TokenEmbedding(source_vocabulary, config.d_model)
        return cls(
            config.encoder((max_length,)),
            config.decoder((max_length,), cross=True, n_layers=n_decoder_layers),
            source_embedding=source,
            target_embedding=(
                source
                if share_embeddings == "all"
                else TokenEmbedding(target_vocabulary, config.d_model)
            ),
            positions=config.positions.build(config.d_model, raster((max_length,))),
            tie_output=share_embeddings != "none",
            dropout=config.dropout,
        )

    def forward(
        self, source: Tensor, source_padding: Tensor | None, target_input: Tensor
    ) -> Tensor:
        """Logits of every next token under teacher forcing.

        source int64 [B, S], source_padding [B, S] True on padding, target_input int64 [B, T]
        beginning with the start token; its padding stands at the end, where no real position
        sees it -> [B, T, V].
        """
        memory = self.encode(source, source_padding)
        x = self._enter(self.target_embedding, target_input)  # [B, T, D]
        return self._logits(self.decoder(x, None, memory, source_padding))

    def encode(self, source: Tensor, source_padding: Tensor | None = None) -> Tensor:
        """The memory that the decoder reads: [B, S] -> [B, S, D]."""
        memory: Tensor = self.encoder(self._enter(self.source_embedding, source), source_padding)
        return memory

    def init_cache(self, memory: Tensor, source_padding: Tensor | None, max_length: int) -> State:
        """Storage to decode at most `max_length` tokens for each row of the memory."""
        return self.decoder.init_cache(memory.shape[0], max_length, memory, source_padding)

    def narrow(self, state: State, length: int) -> State:
        """Views of the state that hold the first `length` tokens, as in `Decoder`."""
        return self.decoder.narrow(state, length)

    def step(self, token: Tensor, position: Tensor, state: State) -> Tensor:
        """Read the token at `position` (int64 [B]) and predict the next: logits [B, V]."""
        index = position.view(1)
        x = self.target_embedding(token.unsqueeze(1), index) + self.positions(index)  # [B, 1, D]
        return self._logits(self.decoder.step(self.dropout(x), position, state)[:, -1])

    def _enter(self, embedding: TokenEmbedding, tokens: Tensor) -> Tensor:
        index = torch.arange(tokens.shape[1], device=tokens.device)  # [L]
        x: Tensor = self.dropout(embedding(tokens, index) + self.positions(index))  # [B, L, D]
        return x

    def _logits(self, x: Tensor) -> Tensor:
        if self.output is not None:
            logits: Tensor = self.output(x)
            return logits
        return F.linear(x, self.target_embedding.table.weight)  # [..., V]
