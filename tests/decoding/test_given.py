"""Known values: forced in the order of generation, and resampling that sees those after it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from decoders import pixel_model
from enumerable import LEVELS, N_DRAWS, D, assert_distributed_as, categorical, enumerated, given

from triptych.core.models.base import Condition
from triptych.decoding.generate import generate
from triptych.decoding.given import resample
from triptych.decoding.sampling import Draft, Given, SampleRequest
from triptych.types import Sampling


def test_known_values_that_come_first_condition_exactly() -> None:
    model, fixed = categorical(), {0: 2, 1: 0, 2: 1}
    found = generate(model, SampleRequest(count=N_DRAWS, length=6, given=given(fixed), seed=1))
    assert_distributed_as(found, enumerated(model, fixed))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_pass_of_resampling_keeps_the_exact_distribution(temperature: float) -> None:
    fixed, count = {1: 1, 4: 0, 5: 2}, 4_000
    model, generator = categorical(), torch.Generator().manual_seed(4)
    exact = enumerated(model, fixed, temperature)
    every = torch.cartesian_prod(*[torch.arange(LEVELS)] * 6)
    start = every[exact.multinomial(count, replacement=True, generator=generator)]  # [N, 6]
    request = SampleRequest(
        given=given(fixed, start), sampling=Sampling(temperature=temperature), generator=generator
    )
    found, accepted = resample(model, request, passes=2, block=2)
    assert 0 < accepted < 1
    assert (found != start).any(0).tolist() == [True, False, True, True, False, False]
    assert_distributed_as(found, exact)


def test_the_positions_of_all_passes_are_the_work_of_resampling() -> None:
    values, seen = torch.zeros(1, 6, dtype=torch.int64), list[tuple[int, int]]()
    known = Given(values, torch.tensor([[False, True, False, True, True, False]]))
    request = SampleRequest(given=known, progress=lambda done, of: seen.append((done, of)))
    resample(categorical(), request, passes=3, block=1)
    assert seen == [(p * 6 + position, 18) for p in range(3) for position in (1, 3, 6)]


def test_known_values_come_back_unchanged_in_each_row() -> None:
    model = pixel_model().float()
    values, known = torch.randint(7, (5, 12, 3)), torch.rand(5, 12) < 0.5
    condition = Condition(torch.randn(5, 1, D))
    request = SampleRequest(5, 12, given=Given(values, known), condition=condition)
    found = generate(model, request)
    assert torch.equal(found[known], values[known])
    assert not torch.equal(found[~known], values[~known])
    request = SampleRequest(given=Given(found, known), condition=condition)
    again, _ = resample(model, request, passes=2, block=4)
    assert torch.equal(again[known], values[known])
    with pytest.raises(ValueError, match="categorical"):
        resample(model, replace(request, sampling=Sampling(temperature=0.9)), passes=1, block=4)


def test_drafts_give_the_same_values_with_known_ones() -> None:
    model = categorical()
    some = Given(torch.randint(LEVELS, (4, 6)), torch.rand(4, 6) < 0.5)
    plain, drafted = (
        generate(model, SampleRequest(count=4, length=6, given=some, draft=draft, seed=5))
        for draft in (None, Draft(2, 3))
    )  # fmt: skip
    assert torch.equal(plain, drafted)
