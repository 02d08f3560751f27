"""Condition of a melody: times, sinusoids and steps by loops, and decoding with a state."""

from __future__ import annotations

import math

import pytest
import torch
from decoders import assert_steps_predict
from random_head import with_random_head
from torch import nn

from triptych.core.attention.full import Full
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.layers import GELU
from triptych.core.models.base import Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import NoPositions, Sinusoidal, raster
from triptych.core.state import Memory
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.melody import MelodyConditioner
from triptych.domains.music.tokenizers.base import N_MELODY_SYMBOLS

DURATIONS, STEP, D, LENGTH = [0, 3, 1, 0, 7], 4, 16, 12


CONFIG = TransformerConfig(2, D, 2, feed_forward=GELU(32), attention=Full(), dropout=0.0)


def conditioner_of(durations=DURATIONS, step=STEP):
    encoder = SequenceEncoder(
        TokenEmbedding(N_MELODY_SYMBOLS, D),
        Sinusoidal().build(D, raster((1,))),
        CONFIG.encoder((1,)),
    )
    return MelodyConditioner(encoder, torch.tensor(durations), step, D)


def vectors_of(conditioner, values, condition):
    kept = conditioner.start(condition, len(values), values.shape[1] + 1)
    return conditioner.first_vectors(values, kept)


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = DecoderOnly(
        TokenEmbedding(len(DURATIONS), D),
        NoPositions().build(D, raster((LENGTH,))),
        CONFIG.decoder((LENGTH,), cross=True),
        CategoricalHead(D, len(DURATIONS)),
        d_model=D,
        conditioner=conditioner_of(),
    )
    return with_random_head(made).eval()


@pytest.fixture
def values():
    return torch.randint(len(DURATIONS), (3, LENGTH), generator=torch.Generator().manual_seed(1))


def test_a_position_has_the_sinusoids_of_its_time_and_the_memory_of_its_step(values):
    torch.manual_seed(2)
    conditioner = with_random_head(conditioner_of())
    lengths, memory = (4, 1, 2), torch.randn(3, 4, D)
    real = torch.arange(4) < torch.tensor(lengths).unsqueeze(1)
    found = vectors_of(conditioner, values, Condition(memory=Memory(memory, real)))
    assert found.shape == (3, LENGTH + 1, D)
    for row, of_row in enumerate(values.tolist()):
        for position in range(LENGTH + 1):
            time = sum(DURATIONS[value] for value in of_row[:position])
            expected = torch.zeros(D)
            for pair in range(D // 2):
                angle = time / STEP / 10000 ** (2 * pair / D)
                expected[2 * pair], expected[2 * pair + 1] = math.sin(angle), math.cos(angle)
            if time // STEP < lengths[row]:
                expected = expected + conditioner.proj.weight @ memory[row, time // STEP]
            torch.testing.assert_close(found[row, position], expected)


def test_a_new_model_ignores_the_other_sequence(model, values):
    """Where cross-attention and the map of the memory start at zero; training moves both."""
    for block in model.decoder.blocks:
        nn.init.zeros_(block.cross.out_proj.weight)
    nn.init.zeros_(model.conditioner.proj.weight)
    one, other = (model.conditioner(torch.randint(9, (3, 5))) for _ in range(2))
    assert torch.equal(model(values, condition=one), model(values, condition=other))
    model.nll(values, condition=one).sum().backward()
    for weight in (model.conditioner.proj.weight, model.decoder.blocks[0].cross.out_proj.weight):
        assert weight.grad.any()


@pytest.mark.parametrize(("n_prefix", "together"), [(0, 1), (4, 1), (4, 3)])
def test_steps_predict_as_one_pass_does(model, values, n_prefix, together):
    """Also where a step reads several values and goes back to overwrite wrong ones."""
    condition = model.conditioner(torch.randint(9, (3, 5)))
    assert_steps_predict(model, values, n_prefix, together, wrong=4, condition=condition)


def test_the_time_matters(model, values):
    """The same tokens so far, but other times, give other predictions."""
    condition = model.conditioner(torch.randint(9, (3, 5)))
    with torch.no_grad():
        before = model(values, condition=condition)
        model.conditioner.durations[:] = torch.tensor([5, 0, 0, 2, 0])
        assert not torch.allclose(before, model(values, condition=condition))


def test_late_times_have_exact_sinusoids():
    """A time that is no whole number of steps, after which float32 has lost three digits."""
    late, step = 300_001, 7
    conditioner, value = conditioner_of([late], step), torch.zeros(1, 1, dtype=torch.int64)
    condition = Condition(memory=Memory(torch.zeros(1, 1, D)))
    found = vectors_of(conditioner, value, condition)[0, 1]  # [D]
    angles = [late / step / 10000 ** (2 * pair / D) for pair in range(D // 2)]
    expected = [f(angle) for angle in angles for f in (math.sin, math.cos)]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-6)
