"""The particle filter against enumeration."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from enumerable import LEVELS, N_DRAWS, D, assert_distributed_as, categorical, enumerated, given
from torch import Tensor

from triptych.core.models.base import Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.given import particle_filter
from triptych.decoding.sampling import Given, SampleRequest
from triptych.types import Sampling

FIXED = {1: 1, 3: 2, 5: 0}


def exact(fixed: dict[int, int]) -> float:
    """log p of the fixed values, in nats."""
    model, every = categorical(), torch.tensor(list(product(range(LEVELS), repeat=6)))
    with torch.no_grad():
        p = (-model.nll(every).double().sum(1)).exp()
    for position, value in fixed.items():
        p = p * (every[:, position] == value)
    return math.log(float(p.sum()))


def filtered(
    model: DecoderOnly, given: Given, particles: int, n_prefix: int = 0, **request: Any
) -> tuple[Tensor, Tensor]:
    asked = SampleRequest(given=given, **request)
    return particle_filter(model, asked, particles=particles, n_prefix=n_prefix)


def rows(fixed: dict[int, int], count: int) -> Given:
    every = given(fixed)
    return Given(every.values[:count], every.known[:count])


@pytest.mark.slow
def test_the_estimate_is_unbiased_and_closes_in_with_more_particles() -> None:
    generator = torch.Generator().manual_seed(1)
    model, expected = categorical(), exact(FIXED)
    _, few = filtered(model, rows(FIXED, N_DRAWS), 3, generator=generator)
    p = few.exp()
    error = float(p.std()) / math.sqrt(N_DRAWS)
    assert abs(float(p.mean()) - math.exp(expected)) < 4 * error
    assert float(few.mean()) < expected
    _, many = filtered(model, rows(FIXED, 20), 2_000, generator=generator)
    assert float(many.mean()) == pytest.approx(expected, abs=0.03)
    assert float(many.std()) < float(few.std()) / 5


def test_known_values_that_come_first_are_exact_with_one_particle() -> None:
    fixed = {0: 2, 1: 0, 2: 1}
    values, found = filtered(categorical(), rows(fixed, 3), 1)
    assert found.tolist() == pytest.approx([exact(fixed)] * 3, abs=1e-5)
    assert (values[:, :3] == torch.tensor([2, 0, 1])).all()


@pytest.mark.parametrize("count", [2_000, pytest.param(N_DRAWS, marks=pytest.mark.slow)])
def test_drawn_values_tend_to_the_exact_conditional_distribution(count: int) -> None:
    model = categorical()
    p = enumerated(model, FIXED)
    every, generator = rows(FIXED, count), torch.Generator().manual_seed(2)
    found, _ = filtered(model, every, 60, generator=generator)
    assert (found[every.known] == every.values[every.known]).all()
    assert_distributed_as(found, p)
    one, _ = filtered(model, every, 1, generator=generator)
    with pytest.raises(AssertionError):  # one copy does not see the known values ahead
        assert_distributed_as(one, p)


@pytest.mark.slow
def test_temperature_prefix_and_condition() -> None:
    """A prefix is a condition of the estimate, and the class vector reaches every copy."""
    model = categorical(1.0)
    prefix = {0: 2}
    every = given({**prefix, 4: 0, 5: 1}, count=4_000)
    generator = torch.Generator().manual_seed(4)
    cool = Sampling(temperature=0.8)
    found, log_p = filtered(model, every, 40, 1, sampling=cool, generator=generator)
    exact_p = enumerated(model, {**prefix, 4: 0, 5: 1}, 0.8)
    assert_distributed_as(found, exact_p)
    of_prefix = enumerated(model, prefix, 0.8)
    p = float(of_prefix[exact_p > 0].sum())
    error = float(log_p.exp().std()) / math.sqrt(4_000)
    assert abs(float(log_p.exp().mean()) - p) < 4 * error

    condition = Condition(torch.randn(3, 1, D))
    few = rows(FIXED, 3)
    one, _ = filtered(model, few, 4, condition=condition, generator=generator.manual_seed(1))
    assert (one[few.known] == few.values[few.known]).all()
    first = Condition(condition.vectors[:1].expand(3, -1, -1))
    fixed = {0: 2, 1: 0, 2: 1}
    _, by_row = filtered(model, rows(fixed, 3), 2, condition=condition)
    _, by_first = filtered(model, rows(fixed, 3), 2, condition=first)
    assert by_row[0] == pytest.approx(float(by_first[0]))
    assert by_row[1] != pytest.approx(float(by_first[1]))


def test_a_constraint_concerns_unknown_values_alone() -> None:
    def never_two(values: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[False, False, True]]).expand(len(values), -1)

    some = rows({2: 2}, 200)
    found, _ = filtered(categorical(1.0), some, 3, constraint=never_two)
    assert (found[:, 2] == 2).all()
    assert not (found[~some.known] == 2).any()
