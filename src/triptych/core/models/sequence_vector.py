"""One vector of a whole sequence, and the linear layer that a task puts on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import EncoderOnly, Pooler


class EncoderReader(nn.Module):
    """The pooler's vector of the first token, [CLS] (Devlin et al. 2018, section 3.2).

    Without a pooler the mean of the vectors of all tokens (Reimers and Gurevych 2019, section 3).
    """

    def __init__(self, encoder: EncoderOnly, pooler: Pooler | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooler = pooler

    def forward(self, tokens: Tensor, segments: Tensor, padding: Tensor) -> Tensor:
        vectors: Tensor = self.encoder(tokens, segments, padding)  # [B, L, D]
        if self.pooler is None:
            real = (~padding).unsqueeze(-1)  # [B, L, 1]
            vectors = (vectors * real).sum(1) / real.sum(1)  # [B, D]
        else:
            vectors = self.pooler(vectors)  # [B, D]
        return vectors


class LastTokenReader(nn.Module):
    """The vector of a decoder that has read the last token (Radford et al. 2018, section 3.2).

    A sequence is at least one token shorter than the positions of the decoder, which predicts the
    token after the end. The decoder's output layer is not used.
    """

    def __init__(self, model: DecoderOnly) -> None:
        super().__init__()
        self.model = model
        for name, weight in model.head.named_parameters():
            if name.endswith("bias"):  # the matrix is that of the embedding
                weight.requires_grad_(False)

    def forward(self, tokens: Tensor, segments: Tensor, padding: Tensor) -> Tensor:
        lengths = (~padding).sum(1)  # [B]
        # Features at position t have read the tokens before t.
        values = torch.cat([tokens, tokens[:, :1]], dim=1)  # [B, L + 1]
        features = self.model.features(values)  # [B, L + 1, D]
        return features[torch.arange(len(tokens), device=tokens.device), lengths]  # [B, D]


class TaskHead(nn.Module):
    """A linear layer, zero at first, so that a new model gives all classes equal probability."""

    def __init__(self, d_model: int, n_outputs: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(d_model, n_outputs)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors [..., D] -> logits [..., n_outputs]."""
        logits: Tensor = self.linear(self.dropout(vectors))  # [..., n_outputs]
        return logits


class SequenceTaskModel(nn.Module):
    """A reader and the linear layer of a task.

    An example is one or more rows of tokens, such as the candidates of a question. reader: returns
    the vectors [B, D] of rows int64 [B, L], from their segments int64 [B, L], which a decoder
    ignores, and their padding bool [B, L], True on padding, which follows the row.
    """

    def __init__(self, reader: nn.Module, head: TaskHead) -> None:
        super().__init__()
        self.reader = reader
        self.task_head = head

    def vectors(self, tokens: Tensor, segments: Tensor, padding: Tensor) -> Tensor:
        """Vectors of the rows of examples: three tensors [B, R, L] -> [B, R, D]."""
        rows: Tensor = self.reader(*(each.flatten(0, 1) for each in (tokens, segments, padding)))
        return rows.view(*tokens.shape[:2], -1)  # [B, R, D]
