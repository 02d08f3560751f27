"""One vector of a sequence, by each reader's definition, in batches of examples with padding."""

from __future__ import annotations

import pytest
import torch

from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.layers import GELU
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import (
    EncoderOnly,
    Pooler,
    SequenceTaskModel,
    TaskHead,
)
from triptych.core.positions import Learned, raster
from triptych.core.transformer import TransformerConfig

CONFIG = TransformerConfig(2, 16, 2, dropout=0.0, feed_forward=GELU(32), positions=Learned())
LENGTHS = [[1, 5], [4, 2], [3, 6]]


def model_of(kind: str) -> SequenceTaskModel:
    task_head = TaskHead(16, 3, dropout=0.5)
    if kind == "last":
        embedding = TokenEmbedding(11, 16)
        head = CategoricalHead(16, 11, weight=embedding.table.weight)
        places = CONFIG.positions.build(16, raster((8,)))
        decoder = CONFIG.decoder((8,))
        base = DecoderOnly(embedding, places, decoder, head, d_model=16)
        return SequenceTaskModel(base, None, task_head)
    encoder = EncoderOnly(CONFIG, vocabulary=11, max_length=8)
    return SequenceTaskModel(encoder, Pooler(16) if kind == "first" else None, task_head)


def by_definition(model: SequenceTaskModel, tokens: torch.Tensor, segment: int) -> torch.Tensor:
    """The vector of one sequence [1, L] without padding."""
    if model.decoder is not None:  # any token may follow: it is not read
        features = model.decoder.features(torch.cat([tokens, tokens[:, :1] * 0 + 7], 1))
        return features[0, tokens.shape[1]]
    assert model.encoder is not None
    features = model.encoder(tokens, torch.full_like(tokens, segment))
    if model.pooler is None:
        return features[0].mean(0)
    return torch.tanh(model.pooler.linear(features[0, 0]))


@pytest.mark.parametrize("kind", ["first", "mean", "last"])
def test_rows_of_examples_have_the_vectors_of_the_definition(kind: str) -> None:
    model = model_of(kind).double().eval()
    tokens, segments = torch.randint(1, 11, (3, 2, 6)), torch.ones(3, 2, 6, dtype=torch.int64)
    padding = torch.arange(6) >= torch.tensor(LENGTHS).unsqueeze(-1)  # [B, R, L]
    vectors = model.vectors(tokens, segments, padding)
    assert vectors.shape == (3, 2, 16)
    for example in range(3):
        for row, length in enumerate(LENGTHS[example]):
            alone = by_definition(model, tokens[example, row : row + 1, :length], 1)
            torch.testing.assert_close(vectors[example, row], alone)
    logits = model.task_head(vectors)
    assert torch.equal(logits, torch.zeros(3, 2, 3).double()), "all classes are equal at first"
    torch.nn.init.normal_(model.task_head.linear.weight)
    model.train()
    model.task_head(vectors).sum().backward()
    for name, weight in model.named_parameters():  # the output layer of a decoder is not used
        assert (weight.grad is not None) == weight.requires_grad, name
