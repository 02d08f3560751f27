"""The mean of the probabilities of several models, against a loop from its definition."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from decoders import D, decoder_only
from enumerable import LEVELS, N_DRAWS, assert_distributed_as, categorical, enumerated
from test_decoding_state import no_sync_device
from test_translators import END, EXACT, START, V, recurrent, transformer
from torch import Tensor

from triptych.core.attention.relative import Relative
from triptych.core.models.averaged import AveragedDecoder, AveragedTranslator
from triptych.core.models.base import Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.beam_search import beam_search
from triptych.decoding.generate import generate
from triptych.decoding.sampling import Draft, SampleRequest

TOKENS, LENGTH = 5, 6
UP, DOWN = [1, 2, -1, 3, 4], [-1, 0, 1, 3, 4]
"""Maps of three pitches and two other tokens, by a step up and down."""


def averaged() -> AveragedDecoder:
    """Two members of different sizes, the first also under two maps."""
    torch.manual_seed(1)
    first = decoder_only(TOKENS, (LENGTH,), attention=Relative(4)).double().eval()
    second = decoder_only(TOKENS, (LENGTH,), n_layers=1).double().eval()
    maps = [None, torch.tensor(UP), torch.tensor(DOWN), None]
    return AveragedDecoder([first, first, first, second], maps)


def by_definition(model: AveragedDecoder, values: Tensor, previous: Tensor) -> Tensor:
    """Probabilities [B, L, V] from plain lists."""
    maps = [list(range(TOKENS)), UP, DOWN, list(range(TOKENS))]
    rows = []
    for row, before in zip(values.tolist(), previous.tolist(), strict=True):
        for t in range(len(row)):
            of_members = []
            for member, of_token in zip(model.members, maps, strict=True):
                past = [of_token[token] for token in row[:t]]
                start = -1 if before < 0 else of_token[before]
                if -1 in past or (before >= 0 and start < 0):
                    continue
                logits = member(torch.tensor([[*past, 0]]), torch.tensor([start]))[0, t]
                weights = [logits[id].exp() if id >= 0 else logits.new_zeros(()) for id in of_token]
                of_members.append(torch.stack(weights) / sum(weights))
            rows.append(torch.stack(of_members).mean(0))
    return torch.stack(rows).view(*values.shape, TOKENS)


def examples() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randint(TOKENS, (4, LENGTH)), torch.tensor([-1, 0, 3, 2])


def test_a_pass_is_the_mean_of_the_definition() -> None:
    model, (values, previous) = averaged(), examples()
    expected = by_definition(model, values, previous)
    torch.testing.assert_close(model(values, previous).exp(), expected, **EXACT)
    nll = -expected.log().gather(2, values.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(model.nll(values, previous), nll, **EXACT)


def test_the_probabilities_of_all_sequences_sum_to_one() -> None:
    every = torch.tensor(list(product(range(TOKENS), repeat=3)))
    nll = averaged().nll(every, torch.full((len(every),), 2))
    torch.testing.assert_close(nll.sum(1).neg().exp().sum(), torch.ones(()).double(), **EXACT)


@pytest.mark.parametrize("prefix", [0, 3])
@pytest.mark.parametrize(("before", "at_once"), [(False, True), (True, False)])
def test_decoding_predicts_what_a_pass_predicts(prefix: int, before: bool, at_once: bool) -> None:
    model, (values, previous) = averaged(), examples()
    given = previous if before else None
    condition = Condition(torch.randn(4, 1, D).double())
    expected = model(values, given, condition)
    state = model.init_state(4, LENGTH, condition=condition)
    parts = [model.prefill(values[:, :prefix], state, given)]
    later = torch.arange(prefix + 1, LENGTH)
    contexts = model.step_contexts(later, state) if at_once else [None] * len(later)
    for t, context in zip(later, contexts, strict=True):
        view = state if at_once else model.state_view(state, int(t) + 1)
        parts.append(model.step(values[:, t - 1 : t], t.view(1), view, context)[:, 0])
    torch.testing.assert_close(torch.stack(parts, dim=1), expected[:, prefix:], **EXACT)


def test_several_values_at_once_and_other_rows() -> None:
    model, (values, previous) = averaged(), examples()
    expected = model(values, previous)
    state = model.init_state(4, LENGTH, lookahead=2)
    model.prefill(values[:, :0], state, previous)
    wrong = values.clone()
    wrong[:, 1] = 2  # a draft, which takes a member away until it is overwritten
    for row, t in ((wrong, 1), (values, 2), (values, 3)):
        found = model.step(row[:, t - 1 : t + 2], torch.arange(t, t + 3), state)
    torch.testing.assert_close(found, expected[:, 3:], **EXACT)
    rows = torch.tensor([2, 0, 0, 1])
    for reordered in (False, True):
        if reordered:
            state.reorder(rows)
        other = state if reordered else state.select(rows)
        again = model.step(values[rows][:, 2:5], torch.arange(3, 6), other)
        torch.testing.assert_close(again, expected[rows][:, 3:], **EXACT)


def test_samples_have_the_distribution_of_the_mean() -> None:
    first, second = categorical(), categorical(scale=-1.0)
    maps = [None, torch.tensor([1, 2, -1]), None]
    model = AveragedDecoder([first, first, second], maps)
    request = SampleRequest(count=N_DRAWS, length=6, seed=4)
    drawn = generate(model, request)
    assert_distributed_as(drawn, enumerated(model, {}))
    few = SampleRequest(count=50, length=6, seed=5)
    drafted = SampleRequest(count=50, length=6, seed=5, draft=Draft(1, count=2))
    assert torch.equal(generate(model, few), generate(model, drafted))
    assert drawn.max() == LEVELS - 1


def test_translations_are_searched_by_the_mean_of_different_models() -> None:
    torch.manual_seed(5)
    model = AveragedTranslator([transformer().eval(), recurrent()])
    source = torch.tensor([[3, 4, 5, END], [6, 7, END, 0]])
    padding = source == 0
    target = torch.randint(3, V, (2, 5))
    inputs = torch.cat([torch.full((2, 1), START), target[:, :-1]], dim=1)
    each = [member(source, padding, inputs).softmax(-1) for member in model.members]
    expected = sum(each).div(2).log()
    torch.testing.assert_close(model(source, padding, inputs), expected, **EXACT)

    state = model.init_state(2, 6, condition=model.encode(source, padding))
    found = beam_search(model, state, beam=3, start=START, end=END, max_lengths=[6, 4], n_best=3)
    for row, result in enumerate(found):
        for hypothesis in result.best:
            tokens = [*hypothesis.tokens, *[END] * hypothesis.finished]
            given = torch.tensor([[START, *tokens[:-1]]])
            log_p = model(source[row : row + 1], padding[row : row + 1], given)[0]
            total = log_p[torch.arange(len(tokens)), tokens].sum()
            assert hypothesis.log_probability == pytest.approx(total.item(), abs=1e-9)


def test_a_step_never_waits_for_the_device() -> None:
    model = averaged()
    device = no_sync_device(model)
    state = model.init_state(2, LENGTH)
    values = torch.zeros(2, 1, dtype=torch.int64, device=device)
    assert model.step(values, torch.tensor([3], device=device), state).shape == (2, 1, TOKENS)


def test_members_need_the_same_tokens_and_one_without_a_map() -> None:
    model: DecoderOnly = decoder_only(TOKENS)
    for members, maps in (
        ([model, decoder_only(TOKENS + 1)], None),
        ([model], [torch.arange(TOKENS)]),
        ([model, model], [None, torch.arange(3)]),
    ):
        with pytest.raises(ValueError, match="tokens"):
            AveragedDecoder(members, maps)
