"""Aligned memory: times, sinusoids and steps by loops, and decoding with a state."""

from __future__ import annotations

import math

import pytest
import torch
from random_head import with_random_head
from torch import nn

from triptych.core.aligned import AlignedMemory
from triptych.core.attention.full import Full
from triptych.core.embeddings import TokenEmbedding
from triptych.core.feed_forward import GELU
from triptych.core.generation_order import raster
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder import SequenceEncoder
from triptych.core.positions import NoPositions, Sinusoidal
from triptych.core.transformer import TransformerConfig

DURATIONS, STEP, D, LENGTH = [0, 3, 1, 0, 7], 4, 16, 12


@pytest.fixture
def model():
    torch.manual_seed(0)
    order = raster((LENGTH,))
    config = TransformerConfig(2, D, 2, feed_forward=GELU(32), attention=Full(), dropout=0.0)
    encoder = SequenceEncoder(
        TokenEmbedding(9, D), Sinusoidal().build(D, order), config.encoder((1,))
    )
    made = DecoderOnly(
        TokenEmbedding(len(DURATIONS), D),
        NoPositions().build(D, order),
        config.decoder((LENGTH,), cross=True),
        CategoricalHead(D, len(DURATIONS)),
        d_model=D,
        encoder=encoder,
        aligned=AlignedMemory(torch.tensor(DURATIONS), STEP, D),
    )
    return with_random_head(made).eval()


@pytest.fixture
def values():
    return torch.randint(len(DURATIONS), (3, LENGTH), generator=torch.Generator().manual_seed(1))


def test_a_position_has_the_sinusoids_of_its_time_and_the_memory_of_its_step(values):
    torch.manual_seed(2)
    aligned = with_random_head(AlignedMemory(torch.tensor(DURATIONS), STEP, D))
    lengths, memory = (4, 1, 2), torch.randn(3, 4, D)
    real = torch.arange(4) < torch.tensor(lengths).unsqueeze(1)
    found = aligned(values, memory, real)
    assert found.shape == (3, LENGTH + 1, D)
    for row, of_row in enumerate(values.tolist()):
        for position in range(LENGTH + 1):
            time = sum(DURATIONS[value] for value in of_row[:position])
            expected = torch.zeros(D)
            for pair in range(D // 2):
                angle = time / STEP / 10000 ** (2 * pair / D)
                expected[2 * pair], expected[2 * pair + 1] = math.sin(angle), math.cos(angle)
            if time // STEP < lengths[row]:
                expected = expected + aligned.proj.weight @ memory[row, time // STEP]
            torch.testing.assert_close(found[row, position], expected)


def test_a_new_model_ignores_the_other_sequence(model, values):
    """Cross-attention and aligned memory start at zero; training moves both."""
    for block in model.decoder.blocks:
        nn.init.zeros_(block.cross.out_proj.weight)
    nn.init.zeros_(model.aligned.proj.weight)
    one, other = (model.encode(torch.randint(9, (3, 5))) for _ in range(2))
    assert torch.equal(model(values, condition=one), model(values, condition=other))
    model.nll(values, condition=one).sum().backward()
    for weight in (model.aligned.proj.weight, model.decoder.blocks[0].cross.out_proj.weight):
        assert weight.grad.any()


@pytest.mark.parametrize(("n_prefix", "together"), [(0, 1), (4, 1), (4, 3)])
def test_steps_predict_as_one_pass_does(model, values, n_prefix, together):
    """Also where a step reads several values and goes back to overwrite wrong ones."""
    condition = model.encode(torch.randint(9, (3, 5)))
    with torch.no_grad():
        expected = model(values, condition=condition)
        state = model.init_state(3, LENGTH, lookahead=together, condition=condition)
        predicted = model.prefill(values[:, :n_prefix], state)
        torch.testing.assert_close(predicted, expected[:, n_prefix])
        for first in range(n_prefix + 1, LENGTH):
            positions = torch.arange(first, min(first + together, LENGTH))
            read = values[:, positions - 1].clone()
            read[:, 1:] = 4  # a draft that is wrong and overwritten by the next step
            predicted = model.step(read, positions, state)
            torch.testing.assert_close(predicted[:, 0], expected[:, first])


def test_the_time_matters(model, values):
    """The same tokens so far, but other times, give other predictions."""
    condition = model.encode(torch.randint(9, (3, 5)))
    with torch.no_grad():
        before = model(values, condition=condition)
        model.aligned.durations[:] = torch.tensor([5, 0, 0, 2, 0])
        assert not torch.allclose(before, model(values, condition=condition))


def test_late_times_have_exact_sinusoids():
    """A time that is no whole number of steps, after which float32 has lost three digits."""
    late, step = 300_001, 7
    aligned = AlignedMemory(torch.tensor([late]), step, D)
    found = aligned(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, D), None)[0, 1]  # [D]
    angles = [late / step / 10000 ** (2 * pair / D) for pair in range(D // 2)]
    expected = [f(angle) for angle in angles for f in (math.sin, math.cos)]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-6)
