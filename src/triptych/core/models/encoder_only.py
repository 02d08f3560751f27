"""Encoders of sequences: BERT, and one whose output conditions a decoder; vectors of sequences."""

import torch
from torch import Tensor, nn

from triptych.core.embeddings import TokenEmbedding, ValueEmbedding, embedding_table
from triptych.core.heads import CategoricalHead
from triptych.core.models.base import inverted
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import raster
from triptych.core.state import ForwardContext
from triptych.core.transformer import Stack, TransformerConfig


class EncoderOnly(nn.Module):
    """Reads a sequence of tokens in both directions (Devlin et al. 2018, section 3).

    The input at a position is the sum of the vectors of its token, its segment and its position,
    normalised. max_length: extent in tokens for the position encoding and the attention variant.
    n_segments: texts that a sequence may join, such as the two sentences of a pair.
    """

    def __init__(
        self, config: TransformerConfig, *, vocabulary: int, max_length: int, n_segments: int = 2
    ) -> None:
        super().__init__()
        d_model = config.d_model
        self.embedding = TokenEmbedding(vocabulary, d_model)
        self.segments = embedding_table(n_segments, d_model)
        self.positions = config.input_positions(raster((max_length,)))
        self.norm = config.norm.build(d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = config.encoder((max_length,))

    def forward(
        self, tokens: Tensor, segments: Tensor | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """Vectors of all positions [B, L, D] of tokens int64 [B, L].

        segments: int64 [B, L], None for one; padding: bool [B, L], True on padding.
        """
        index = torch.arange(tokens.shape[1], device=tokens.device)  # [L]
        x = self.embedding(tokens, index)  # [B, L, D]
        x = x + self.segments(torch.zeros_like(tokens) if segments is None else segments)
        x = x + self.positions(index).to(x.dtype)
        x = self.dropout(self.norm(x))
        features: Tensor = self.stack(x, ForwardContext(real=inverted(padding)))  # [B, L, D]
        return features


class Pooler(nn.Module):
    """The vector of a whole sequence: tanh(W x + b) of its first position, [CLS]."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, features: Tensor) -> Tensor:
        """features [B, L, D] -> [B, D]."""
        return torch.tanh(self.linear(features[:, 0]))  # [B, D]


class MaskedTokenModel(nn.Module):
    """Predicts masked tokens from all others (Devlin et al. 2018, section 3.1, task 1).

    The output matrix is the token embedding. next_sentence: also predict, from [CLS], whether the
    second segment follows the first one (task 2).
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        vocabulary: int,
        max_length: int,
        next_sentence: bool = False,
    ) -> None:
        super().__init__()
        d_model = config.d_model
        self.encoder = EncoderOnly(config, vocabulary=vocabulary, max_length=max_length)
        self.transform = nn.Sequential(
            nn.Linear(d_model, d_model), nn.GELU(), config.norm.build(d_model)
        )
        shared = self.encoder.embedding.table.weight  # [V, D]
        self.head = CategoricalHead(d_model, vocabulary, weight=shared)
        self.pooler = Pooler(d_model) if next_sentence else None
        self.next_sentence = CategoricalHead(d_model, 2) if next_sentence else None

    def forward(
        self, tokens: Tensor, segments: Tensor | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """Logits of the token at every position: [B, L, V]; arguments as in `EncoderOnly`."""
        return self.logits(self.encoder(tokens, segments, padding))  # [B, L, V]

    def logits(self, features: Tensor) -> Tensor:
        """Logits of the tokens from the encoder's vectors: [..., D] -> [..., V]."""
        logits: Tensor = self.head(self.transform(features))  # [..., V]
        return logits

    def order(self, features: Tensor) -> Tensor:
        """Logits of whether the second segment follows the first one, of task 2 alone: [B, 2].

        features [B, L, D]; the second logit is that of a segment that follows.
        """
        if self.pooler is None or self.next_sentence is None:
            raise ValueError("this model was built without the next-sentence task")
        logits: Tensor = self.next_sentence(self.pooler(features))  # [B, 2]
        return logits


class SequenceEncoder(nn.Module):
    """Reads a sequence in both directions into the memory of cross-attention.

    embedding: (values [B, K, ...], index [K] of the values) -> [B, K, D]. positions: index int64
    [K] -> [K, D]. stack: not causal, of the decoder's width.
    """

    def __init__(
        self, embedding: ValueEmbedding, positions: nn.Module, stack: Stack, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.stack = stack
        self.dropout = nn.Dropout(dropout)

    def forward(self, values: Tensor, real: Tensor | None = None) -> Tensor:
        """values int64 [B, K, ...], real bool [B, K], False on padding -> memory [B, K, D]."""
        index = torch.arange(values.shape[1], device=values.device)  # [K]
        x = self.embedding(values, index)  # [B, K, D]
        x = self.dropout(x + self.positions(index).to(x.dtype))
        memory: Tensor = self.stack(x, ForwardContext(real=real))
        return memory


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
    """A vector for each row of tokens, and the linear layer of a task.

    An example is one or more rows, such as the candidates of a question. Of an encoder the vector
    is the pooler's of [CLS] (Devlin et al. 2018, section 3.2), without a pooler the mean of all
    tokens' vectors (Reimers and Gurevych 2019, section 3). Of a decoder it is that after the last
    token (Radford et al. 2018, section 3.2), whose output layer is not used; a row is at least one
    token shorter than its positions.
    """

    def __init__(
        self, base: EncoderOnly | DecoderOnly, pooler: Pooler | None, head: TaskHead
    ) -> None:
        super().__init__()
        self.encoder = base if isinstance(base, EncoderOnly) else None
        self.decoder = base if isinstance(base, DecoderOnly) else None
        self.pooler = pooler
        self.task_head = head
        if self.decoder is not None:
            for name, weight in self.decoder.head.named_parameters():
                if name.endswith("bias"):  # the matrix is that of the embedding
                    weight.requires_grad_(False)

    def vectors(self, tokens: Tensor, segments: Tensor, padding: Tensor) -> Tensor:
        """Vectors of the rows of examples: three tensors [B, R, L] -> [B, R, D].

        segments: int64, which a decoder ignores. padding: bool, True on padding, after the row.
        """
        rows, real = tokens.flatten(0, 1), ~padding.flatten(0, 1)  # [B x R, L]
        vectors: Tensor
        if self.decoder is not None:
            # Features at position t have read the tokens before t.
            features = self.decoder.features(torch.cat([rows, rows[:, :1]], dim=1))
            vectors = features[torch.arange(len(rows), device=rows.device), real.sum(1)]
        else:
            assert self.encoder is not None
            features = self.encoder(rows, segments.flatten(0, 1), ~real)  # [B x R, L, D]
            if self.pooler is not None:
                vectors = self.pooler(features)  # [B x R, D]
            else:
                vectors = (features * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)
        return vectors.view(*tokens.shape[:2], -1)  # [B, R, D]


HIDDEN = -1e4
"""Logit of a place that cannot be chosen; finite, so that divergences of distributions are too."""


class SpanModel(nn.Module):
    """Chooses the first and the last token of an answer (Devlin et al. 2018, section 4.2).

    head: of two outputs.
    """

    def __init__(self, encoder: EncoderOnly, head: TaskHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.task_head = head

    def forward(self, tokens: Tensor, segments: Tensor, padding: Tensor) -> Tensor:
        """Logits of the first and of the last token at every place: [B, 2, L].

        tokens, segments: int64 [B, L]; padding: bool [B, L], True on padding. Only the tokens of
        the second segment and the first place, [CLS], which stands for no answer, can be chosen.
        """
        logits: Tensor = self.task_head(self.encoder(tokens, segments, padding))  # [B, L, 2]
        hidden = (segments == 0) | padding  # [B, L]
        hidden[:, 0] = False
        return logits.transpose(1, 2).masked_fill(hidden.unsqueeze(1), HIDDEN)  # [B, 2, L]
