"""The encoder-only model: what its output depends on, and the loss of masked tokens."""

from __future__ import annotations

import pytest
import torch

from triptych.core.layers import GELU
from triptych.core.models.encoder_only import EncoderOnly, MaskedTokenModel, SequenceEncoder
from triptych.core.positions import Learned
from triptych.core.transformer import TransformerConfig

CONFIG = TransformerConfig(
    n_layers=2, d_model=16, n_heads=2, dropout=0.0, feed_forward=GELU(32), positions=Learned()
)
VOCABULARY, LENGTH = 11, 9


@pytest.fixture
def model() -> MaskedTokenModel:
    made = MaskedTokenModel(
        CONFIG, vocabulary=VOCABULARY, max_length=LENGTH, next_sentence=True
    ).double()
    return made.eval()


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (2, LENGTH))


def test_every_input_changes_the_vectors_on_both_sides(
    model: MaskedTokenModel, tokens: torch.Tensor
) -> None:
    encoder = model.encoder
    before = encoder(tokens)
    other = tokens.clone()
    other[:, 4] = other[:, 4] % (VOCABULARY - 1) + 1
    changed = (encoder(other) - before).abs().amax(-1)  # [B, L]
    assert (changed > 1e-6).all(), "both sides of position 4 see it"
    segments = torch.zeros_like(tokens)
    torch.testing.assert_close(encoder(tokens, segments), before)
    segments[:, 5:] = 1
    assert ((encoder(tokens, segments) - before).abs().amax(-1) > 1e-6).all()
    swapped = tokens.clone()
    swapped[:, [1, 2]] = tokens[:, [2, 1]]
    if (tokens[0, 1] != tokens[0, 2]).item():
        assert (encoder(swapped)[0, 0] - before[0, 0]).abs().max() > 1e-8, "order counts"


def test_padding_changes_nothing(model: MaskedTokenModel, tokens: torch.Tensor) -> None:
    alone = model(tokens[:1, :5])
    padded = torch.cat([tokens[:1, :5], torch.zeros(1, 4, dtype=torch.int64)], 1)
    batch = torch.cat([padded, tokens[1:]])
    together = model(batch, padding=batch == 0)
    torch.testing.assert_close(together[:1, :5], alone)


def test_input_sum_from_the_definition(tokens: torch.Tensor) -> None:
    encoder = EncoderOnly(CONFIG, vocabulary=VOCABULARY, max_length=LENGTH).double().eval()
    segments = torch.randint(2, tokens.shape)
    found = []
    handle = encoder.stack.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    encoder(tokens, segments)
    handle.remove()
    for row in range(2):
        for t in range(LENGTH):
            token = encoder.embedding.table.weight[tokens[row, t]] * 16**0.5
            place = encoder.positions.table.weight[t]
            part = encoder.segments.weight[segments[row, t]]
            expected = encoder.norm(token + part + place)
            torch.testing.assert_close(found[0][row, t], expected)


def test_a_memory_is_read_from_the_sum_of_values_and_positions(tokens: torch.Tensor) -> None:
    encoder = EncoderOnly(CONFIG, vocabulary=VOCABULARY, max_length=LENGTH).eval()
    embedding, positions, index = encoder.embedding, encoder.positions, torch.arange(LENGTH)
    memory = SequenceEncoder(embedding, positions, encoder.stack).eval()(tokens)
    expected = encoder.stack(embedding(tokens, index) + positions(index))
    torch.testing.assert_close(memory, expected)


def test_the_output_matrix_is_the_token_embedding(
    model: MaskedTokenModel, tokens: torch.Tensor
) -> None:
    assert model.head.logits.weight is model.encoder.embedding.table.weight
    features = model.encoder(tokens)
    log_p = model(tokens).log_softmax(-1)
    expected = -log_p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    nats = model.head.nll(model.logits(features), tokens)
    torch.testing.assert_close(nats, expected)


def test_order_of_segments_starts_undecided(model: MaskedTokenModel, tokens: torch.Tensor) -> None:
    logits = model.order(model.encoder(tokens))
    torch.testing.assert_close(logits, torch.zeros_like(logits))
    plain = MaskedTokenModel(CONFIG, vocabulary=VOCABULARY, max_length=LENGTH)
    with pytest.raises(ValueError, match="next-sentence"):
        plain.order(plain.encoder(tokens))
