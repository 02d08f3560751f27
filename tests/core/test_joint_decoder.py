"""One decoder over source and target: rows of unequal sources, the cache of the source, losses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from triptych.core.attention.compressed import Compressed
from triptych.core.attention.local1d import Local1D
from triptych.core.layers import GELU
from triptych.core.models.joint_decoder import JointDecoder, joined
from triptych.core.positions import Rotary
from triptych.core.transformer import TransformerConfig
from triptych.decoding.beam_search import beam_search
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest, Sampling

EXACT = {"rtol": 0.0, "atol": 1e-12}
PAD, START, END, V = 0, 1, 2, 11
ALTERNATING = {"attention": Local1D(4, 2), "second_attention": Compressed()}


def model(**settings: object) -> JointDecoder:
    config = TransformerConfig(
        n_layers=3, d_model=12, n_heads=3, dropout=0.0, feed_forward=GELU(16), **settings
    )
    return JointDecoder(config, vocabulary=V, padding=PAD).double().eval()


every_kind = pytest.mark.parametrize("settings", [{}, {"positions": Rotary()}, ALTERNATING])


def batch() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.randint(3, V, (3, 7))
    target = torch.randint(3, V, (3, 5))
    target[:, 0] = START
    source[1, 4:], source[2, 1:], target[1, 3:] = PAD, PAD, PAD
    return source, source == PAD, target


def test_rows_are_joined_without_the_padding_between() -> None:
    source, padding, target = batch()
    rows = joined(source, padding, target, PAD)
    assert rows.shape == (3, 12)
    for row in range(3):
        real = [*source[row][~padding[row]].tolist(), *target[row].tolist()]
        assert rows[row].tolist() == real + [PAD] * (12 - len(real))


@every_kind
def test_a_row_in_its_batch_is_the_row_alone(settings: dict[str, object]) -> None:
    each, (source, padding, target) = model(**settings), batch()
    together = each.features(source, padding, target)
    for row in range(3):
        n, m = int((~padding[row]).sum()), int((target[row] != PAD).sum())
        alone = each.features(source[row : row + 1, :n], None, target[row : row + 1, :m])
        torch.testing.assert_close(together[row : row + 1, :m], alone, **EXACT)


@every_kind
def test_the_target_reads_its_past_and_the_source_alone(settings: dict[str, object]) -> None:
    each, (source, padding, target) = model(**settings), batch()
    before = each.features(source, padding, target)
    other = target.clone()
    other[:, 3:] = 9
    after = each.features(source, padding, other)
    torch.testing.assert_close(after[:, :3], before[:, :3], **EXACT)
    source[0, 0] = 3 if int(source[0, 0]) != 3 else 4
    assert not torch.allclose(each.features(source, padding, target)[0, 0], before[0, 0])


@every_kind
def test_steps_after_the_source_are_the_forward_pass(settings: dict[str, object]) -> None:
    each, (source, _, target) = model(**settings), batch()
    source = source[:, :1].expand(-1, 6).contiguous()
    expected = each(source, None, target)
    state = each.init_state(3, 5, condition=each.encode(source, source == PAD))
    steps = []
    for t in range(5):
        view = each.state_view(state, t + 1)
        steps.append(each.step(target[:, t : t + 1], torch.tensor([t]), view))
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, **EXACT)

    for given in (0, 2):
        state = each.init_state(3, 5, condition=each.encode(source))
        found = each.prefill(target[:, 1 : 1 + given], state, target[:, 0])
        torch.testing.assert_close(found, expected[:, given], **EXACT)
        after = each.step(target[:, given + 1 : given + 2], torch.tensor([given + 1]), state)
        torch.testing.assert_close(after[:, 0], expected[:, given + 1], **EXACT)


@every_kind
def test_a_search_in_a_batch_is_the_search_alone(settings: dict[str, object]) -> None:
    each, source = model(**settings), torch.randint(3, V, (3, 6))

    def search(rows: Tensor) -> list[list[int]]:
        state = each.init_state(len(rows), 6, condition=each.encode(rows))
        found = beam_search(each, state, beam=3, start=START, end=END, max_lengths=[6] * len(rows))
        return [result.best[0].tokens for result in found]

    assert search(source) == [search(source[row : row + 1])[0] for row in range(3)]


def test_sampling_at_temperature_zero_is_greedy_search() -> None:
    each, source = model(**ALTERNATING), torch.randint(3, V, (2, 6))
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
    each, source = model(), torch.randint(3, V, (2, 6))
    state = each.init_state(2, 5, condition=each.encode(source))
    assert torch.equal(state.own.tokens, source)
    assert state.layers[0]["key"].shape[2] == 11
    lengths = []
    each.decoder.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    beam_search(each, state, beam=2, start=START, end=END, max_lengths=[5, 5])
    assert lengths == []


def test_unequal_sources_are_refused_in_decoding() -> None:
    assert not JointDecoder.decodes_padded_sources
    each, (source, padding, _) = model(), batch()
    with pytest.raises(ValueError, match="one length"):
        each.encode(source, padding)


def test_the_loss_of_the_source_is_that_of_a_language_model() -> None:
    each, (source, padding, target) = model(), batch()
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
