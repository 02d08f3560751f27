"""The recurrent encoder-decoder against a loop of the equations of Luong et al. 2015."""

from __future__ import annotations

import math

import pytest
import torch
from decoders import D
from test_translators import EXACT, V, batch, recurrent
from torch import Tensor

from triptych.core.models.recurrent import Recurrence, recurrent_layers
from triptych.core.state import Memory


def lstm_cell(weights: dict[str, Tensor], layer: int, x: Tensor, h: Tensor, c: Tensor) -> tuple:
    """One step of an LSTM layer for one row, from its equations (torch.nn.LSTM)."""
    both = weights[f"weight_ih_l{layer}"] @ x + weights[f"bias_ih_l{layer}"]
    both = both + weights[f"weight_hh_l{layer}"] @ h + weights[f"bias_hh_l{layer}"]
    i, f, g, o = both.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@pytest.mark.parametrize("score", ["dot", "general"])
@torch.no_grad()
def test_the_equations_one_number_at_a_time(score: str) -> None:
    """Scores, weights (equation 7), context, attentional vector (5) and input feeding."""
    each = recurrent(score=score)
    source, target = torch.randint(3, V, (1, 6)), torch.randint(3, V, (1, 5))
    vectors = each.source_embedding.table.weight * math.sqrt(D)
    encoder = dict(each.encoder.layers.named_parameters())
    decoder = dict(each.decoder.layers.named_parameters())
    named = dict(each.decoder.attention.named_parameters())

    states = [(torch.zeros(D).double(), torch.zeros(D).double()) for _ in range(2)]
    memory = []
    for token in source[0]:
        x = vectors[token]
        for layer in range(2):
            states[layer] = lstm_cell(encoder, layer, x, *states[layer])
            x = states[layer][0]
        memory.append(x)

    fed = torch.zeros(D).double()
    expected, alignments = [], []
    for token in target[0]:
        x = torch.cat([vectors[token], fed])
        for layer in range(2):
            states[layer] = lstm_cell(decoder, layer, x, *states[layer])
            x = states[layer][0]
        scores = []
        for h_s in memory:
            key = h_s if score == "dot" else named["memory_proj.weight"] @ h_s
            scores.append(sum(float(x[i]) * float(key[i]) for i in range(D)))
        total = sum(math.exp(s) for s in scores)
        weights = [math.exp(s) / total for s in scores]
        context = sum(a * h_s for a, h_s in zip(weights, memory, strict=True))
        fed = (named["out_proj.weight"] @ torch.cat([context, x])).tanh()
        expected.append(fed)
        alignments.append(weights)

    torch.testing.assert_close(
        each.features(source, None, target)[0], torch.stack(expected), **EXACT
    )
    found, own, _ = each.attention(source, target)
    assert own is None
    torch.testing.assert_close(found[0, 0], torch.tensor(alignments, dtype=torch.float64), **EXACT)


def test_dropout_lies_between_the_layers_of_a_stack() -> None:
    for n_layers in (1, 2, 3):
        layers, x = recurrent_layers("gru", 3, 4, n_layers, 0.5).train(), torch.randn(2, 5, 3)
        assert torch.equal(layers(x)[0], layers(x)[0]) == (n_layers == 1)


def test_the_decoder_has_one_attention_however_many_layers() -> None:
    each, (source, _, target) = recurrent(), batch()
    assert each.decoder.layers.num_layers == 2
    assert each.n_layers == 1
    one, last = (each.attention(source[:1], target[:1], layer) for layer in (each.n_layers, None))
    assert torch.equal(one.cross, last.cross)


def test_a_recurrent_state_cannot_go_back() -> None:
    each, (source, padding, _) = recurrent(), batch()
    with pytest.raises(ValueError, match="lookahead"):
        each.init_state(3, 5, lookahead=1, condition=each.encode(source, padding))
    with pytest.raises(ValueError, match="condition"):
        each.init_state(3, 5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_autocast_rounds_no_state(cell: str, bidirectional: bool) -> None:
    """A translator in bf16 learned its training set to 77 % where that in float32 had all of it."""
    each = recurrent(
        cell=cell, score="dot", bidirectional=bidirectional, input_feeding=False
    ).float()
    source, padding, _ = batch()
    embedded = each.source_embedding.table.weight[source].detach()  # [B, K, D]

    def states(*, autocast: bool) -> list[Tensor]:
        x = embedded.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            memory, last = each.encoder(x, ~padding)
            projected = each.decoder.attention.project_memory(Memory(memory, ~padding))
            before = Recurrence(last, fed=torch.zeros_like(last[:, 0]))
            _, after = each.decoder(x, before, projected)
        (gradient,) = torch.autograd.grad(after.states.sum() + memory.sum(), x)
        return [memory, last, after.states, gradient]

    for rounded, exact in zip(states(autocast=True), states(autocast=False), strict=True):
        torch.testing.assert_close(rounded, exact)  # also of one dtype


def test_a_condition_can_be_used_again() -> None:
    """Steps write into the state, not into the condition that it was made of."""
    each, (source, padding, target) = recurrent(cell="gru"), batch()
    assert each.decodes_padded_sources
    assert each.bytes_per_position() == 2 * D * 8  # a key and a value of a source position
    condition = each.encode(source, padding)
    for _ in range(2):
        state = each.init_state(3, 5, condition=condition)
        found = each.step(target[:, :1], torch.tensor([0]), state)
    again = each.step(target[:, :1], torch.tensor([0]), each.init_state(3, 5, condition=condition))
    torch.testing.assert_close(found, again, rtol=0, atol=0)
