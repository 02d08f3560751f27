"""The two models of the core: decoder-only and encoder-decoder."""

from __future__ import annotations

import math

import pytest
import torch
from decoders import MODELS, D, config, model_with_term, tokens_model
from random_head import with_random_head
from torch import Tensor

from triptych.core.attention.local2d import Local2D
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.embeddings import ChannelEmbedding, PixelEmbedding, TokenEmbedding
from triptych.core.heads import CategoricalHead, MixtureOfLogisticsHead
from triptych.core.models.base import (
    NO_CONDITION,
    Condition,
    Conditioner,
)
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import AxialEmbedding, SinusoidalEmbedding
from triptych.core.state import Memory

EXACT = {"rtol": 0.0, "atol": 1e-12}


every_model = pytest.mark.parametrize("kind", MODELS)


class Reader(Conditioner):
    """A vector at every position, and the memory of a sequence."""

    def __init__(self, encoder: SequenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, sequence: Tensor, padding: Tensor, vectors: Tensor) -> Condition:
        return Condition(vectors, Memory(self.encoder(sequence, ~padding), ~padding))


def conditioned_model() -> DecoderOnly:
    """Local 2-D decoder over 3 x 4 pixels of 3 channels that reads six tokens of another kind."""
    attention, shape = Local2D(2, 2, 1, 1, order="blocks"), (3, 4, 3)
    order = attention.order_of(shape)
    encoder = SequenceEncoder(
        TokenEmbedding(5, D), SinusoidalEmbedding(D), config().encoder((6,))
    )  # fmt: skip
    return with_random_head(DecoderOnly(
        ChannelEmbedding(7, order.coordinates[:, 2], D), AxialEmbedding(order, D),
        config(attention=attention).decoder(shape, cross=True), CategoricalHead(D, 7), d_model=D,
        conditioner=Reader(encoder),
    )).double()  # fmt: skip


@torch.no_grad()
def test_a_term_of_the_logits_reads_the_values_before_a_position() -> None:
    """The two before, -1 for none; what comes before the sequence is not among them."""
    model = model_with_term().eval()
    torch.nn.init.zeros_(model.head.logits.weight)
    torch.nn.init.zeros_(model.head.logits.bias)
    values, table = torch.randint(7, (2, 11)), model.term.table.weight
    logits = model(values, previous=torch.tensor([3, -1]))
    for row, line in enumerate(values.tolist()):
        padded = [-1, -1, *line]
        for t in range(11):
            place = 8 * (padded[t] + 1) + padded[t + 1] + 1
            torch.testing.assert_close(logits[row, t], table[2 * place + t % 2])


@pytest.mark.parametrize("prefix", [0, 5])
@pytest.mark.parametrize("n_vectors", [1, 36])
def test_a_model_with_an_encoder_steps_as_it_trains(prefix: int, n_vectors: int) -> None:
    model, values = conditioned_model(), torch.randint(7, (2, 36))
    sequence, vectors = torch.randint(5, (2, 6)), torch.randn(2, n_vectors, D).double()
    padding = torch.arange(6).expand(2, -1) >= torch.tensor([6, 4]).unsqueeze(1)
    condition = model.conditioner(sequence, padding, vectors)
    expected = model(values, None, condition)
    state = model.init_state(2, 36, condition=condition)
    parts = [model.prefill(values[:, :prefix], state)]
    for t in range(prefix + 1, 36):
        parts.append(model.step(values[:, t - 1 : t], torch.tensor([t]), state)[:, 0])
    torch.testing.assert_close(torch.stack(parts, dim=1), expected[:, prefix:], **EXACT)
    # Every position reads the sequence, and no row reads its padding.
    other = torch.where(padding, sequence, (sequence + 1) % 5)
    assert (
        (model(values, None, model.conditioner(other, padding, vectors)) != expected).any(2).all()
    )
    other = torch.where(padding, (sequence + 1) % 5, sequence)
    assert torch.equal(model(values, None, model.conditioner(other, padding, vectors)), expected)


def test_a_model_needs_a_sequence_exactly_if_it_has_an_encoder() -> None:
    with pytest.raises(ValueError, match="encoder"):
        conditioned_model().init_state(2, 36)
    with pytest.raises(ValueError, match="encoder"):
        tokens_model().init_state(2, 11, condition=Condition(memory=Memory(torch.zeros(2, 3, D))))


@every_model
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("extras", [False, True])
def test_decoding_predicts_what_training_predicts(kind: str, prefix: int, extras: bool) -> None:
    build, shape = MODELS[kind]
    model, values = build(), torch.randint(7, (2, *shape))
    previous = torch.tensor([3, -1]) if extras and shape == (11,) else None
    condition = Condition(torch.randn(2, 1, D).double()) if extras else NO_CONDITION
    expected = model(values, previous, condition)
    if extras:
        assert not torch.allclose(expected, model(values, previous))
    state = model.init_state(2, shape[0], condition=condition)
    parts = [model.prefill(values[:, :prefix], state, previous)]
    for t in range(prefix + 1, shape[0]):
        parts.append(model.step(values[:, t - 1 : t], torch.tensor([t]), state)[:, 0])
    torch.testing.assert_close(torch.stack(parts, dim=1), expected[:, prefix:], **EXACT)


@every_model
def test_several_values_at_once_predict_what_training_predicts(kind: str) -> None:
    build, shape = MODELS[kind]
    model, values = build(), torch.randint(7, (2, *shape))
    condition = Condition(torch.randn(2, 1, D).double())
    expected = model(values, None, condition)
    state = model.init_state(2, shape[0], lookahead=3, condition=condition)
    model.prefill(values[:, :0], state)
    for t in (1, 2, 5, 7):  # with steps back
        positions = torch.arange(t, t + 4)
        parameters = model.step(values[:, t - 1 : t + 3], positions, state)
        torch.testing.assert_close(parameters, expected[:, positions], **EXACT)


@every_model
def test_a_value_moves_only_later_predictions(kind: str) -> None:
    """The shift neither leaks the target nor drops a value: all later positions can see it."""
    build, shape = MODELS[kind]
    model, values = build(), torch.randint(6, (1, *shape))
    before = model(values)
    for t in range(shape[0]):
        other = values.clone()
        other[:, t] = (other[:, t] + 1) % 7
        changed = (model(other) != before).any(-1)[0]
        assert not changed[: t + 1].any()
        if t + 1 < shape[0]:
            assert changed[t + 1], f"the value at {t} is never read"


def test_no_value_before_the_first_is_the_learned_start() -> None:
    model, values = tokens_model(), torch.randint(7, (2, 11))
    none = torch.tensor([-1, -1])
    torch.testing.assert_close(model(values, none), model(values), **EXACT)
    assert not torch.allclose(model(values, torch.tensor([0, 1])), model(values))


@every_model
def test_likelihood_of_a_row_does_not_depend_on_its_batch(kind: str) -> None:
    build, shape = MODELS[kind]
    model, values = build(), torch.randint(7, (3, *shape))
    together = model.nll(values)
    assert together.shape == (3, shape[0])
    for row in range(3):
        torch.testing.assert_close(model.nll(values[row : row + 1])[0], together[row], **EXACT)


def test_attention_to_symbols_refuses_whole_pixels() -> None:
    decoder = config(attention=PitchTime()).decoder((12,))
    head = MixtureOfLogisticsHead(D, levels=7, channels=3, components=2)
    with pytest.raises(ValueError, match="one token per position"):
        with_random_head(
            DecoderOnly(PixelEmbedding(7, 3, D), SinusoidalEmbedding(D), decoder, head, d_model=D)
        )


@pytest.mark.parametrize("kind", ["tokens", "related notes", "sub-pixels"])
def test_a_new_categorical_model_is_uniform(kind: str) -> None:
    build, shape = MODELS[kind]
    model = build()
    model.head = CategoricalHead(D, 7).double()
    nll = model.nll(torch.randint(7, (2, *shape)))
    torch.testing.assert_close(nll, torch.full_like(nll, math.log(7)), rtol=0.0, atol=1e-6)
