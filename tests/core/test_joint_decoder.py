"""One decoder over source and target: rows of unequal sources, the cache of the source, losses."""

from __future__ import annotations

import pytest
import torch
from test_translators import ALTERNATING, END, EXACT, PAD, START, V, batch, joint

from triptych.core.models.joint_decoder import JointDecoder, joined
from triptych.decoding.beam_search import beam_search
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest
from triptych.types import Sampling


def test_rows_are_joined_without_the_padding_between() -> None:
    source, padding, target = batch()
    rows = joined(source, padding, target, PAD)
    assert rows.shape == (3, 12)
    for row in range(3):
        real = [*source[row][~padding[row]].tolist(), *target[row].tolist()]
        assert rows[row].tolist() == real + [PAD] * (12 - len(real))


def test_sampling_at_temperature_zero_is_greedy_search() -> None:
    each, source = joint(**ALTERNATING), torch.randint(3, V, (2, 6))
    state = each.init_state(2, 5, condition=each.encode(source))
    greedy = beam_search(each, state, beam=1, start=START, end=END, max_lengths=[5, 5])
    rows = generate(
        each,
        SampleRequest(
            count=2,
            length=5,
            sampling=Sampling(temperature=0.0),
            end=END,
            previous=torch.full((2,), START),
            condition=each.encode(source),
            seed=0,
        ),
    )
    for row, result in zip(rows.tolist(), greedy, strict=True):
        tokens = row[: row.index(END)] if END in row else row
        assert tokens == result.best[0].tokens


def test_the_source_is_read_once() -> None:
    each, source = joint(), torch.randint(3, V, (2, 6))
    state = each.init_state(2, 5, condition=each.encode(source))
    assert torch.equal(state.own.tokens, source)
    assert state.layers[0]["key"].shape[2] == 11
    lengths = []
    each.decoder.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    beam_search(each, state, beam=2, start=START, end=END, max_lengths=[5, 5])
    assert lengths == []


def test_unequal_sources_are_refused_in_decoding() -> None:
    assert not JointDecoder.decodes_padded_sources
    each, (source, padding, _) = joint(), batch()
    with pytest.raises(ValueError, match="one length"):
        each.encode(source, padding)


def test_the_loss_of_the_source_is_that_of_a_language_joint() -> None:
    each, (source, padding, target) = joint(), batch()
    expected = torch.cat([target[:, 1:], torch.full((3, 1), END)], dim=1)
    x, tokens = each.training_features(source, padding, target, expected)
    torch.testing.assert_close(x, each.features(source, padding, target), **EXACT)
    assert torch.equal(tokens, expected)

    each.source_loss = True
    x, tokens = each.training_features(source, padding, target, expected)
    rows = joined(source, padding, torch.cat([target[:, :1], expected], dim=1), PAD)
    assert torch.equal(tokens, rows[:, 1:])
    first = (~padding).sum(1)
    for row in range(3):
        n = int(first[row])
        torch.testing.assert_close(
            x[row, n : n + 5], each.features(source, padding, target)[row], **EXACT
        )
