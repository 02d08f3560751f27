"""The particle filter against enumeration."""

from __future__ import annotations

import math

import pytest
import torch
from enumerable import N_DRAWS, D, assert_distributed_as, categorical, enumerated, given

from triptych.core.models.base import Condition
from triptych.decoding.given import particle_filter
from triptych.decoding.sampling import Given, SampleRequest, Sampling

FIXED = {1: 1, 3: 2, 5: 0}


def exact(fixed: dict[int, int]) -> float:
    """log p of the fixed values, in nats."""
    from itertools import product

    from enumerable import LEVELS

    model, every = categorical(), torch.tensor(list(product(range(LEVELS), repeat=6)))
    with torch.no_grad():
        p = (-model.nll(every).double().sum(1)).exp()
    for position, value in fixed.items():
        p = p * (every[:, position] == value)
    return math.log(float(p.sum()))


def rows(fixed: dict[int, int], count: int) -> Given:
    every = given(fixed)
    return Given(every.values[:count], every.known[:count])


def test_the_estimate_is_unbiased_and_closes_in_with_more_particles() -> None:
    generator = torch.Generator().manual_seed(1)
    model, expected = categorical(), exact(FIXED)
    _, few = particle_filter(
        model, SampleRequest(given=rows(FIXED, N_DRAWS), generator=generator), particles=3
    )
    p = few.exp()
    error = float(p.std()) / math.sqrt(N_DRAWS)
    assert abs(float(p.mean()) - math.exp(expected)) < 4 * error
    assert float(few.mean()) < expected
    _, many = particle_filter(
        model, SampleRequest(given=rows(FIXED, 20), generator=generator), particles=2_000
    )
    assert float(many.mean()) == pytest.approx(expected, abs=0.03)
    assert float(many.std()) < float(few.std()) / 5


def test_known_values_that_come_first_are_exact_with_one_particle() -> None:
    fixed = {0: 2, 1: 0, 2: 1}
    values, found = particle_filter(categorical(), SampleRequest(given=rows(fixed, 3)), particles=1)
    assert found.tolist() == pytest.approx([exact(fixed)] * 3, abs=1e-5)
    assert (values[:, :3] == torch.tensor([2, 0, 1])).all()


@pytest.mark.parametrize("count", [2_000, pytest.param(N_DRAWS, marks=pytest.mark.slow)])
def test_drawn_values_tend_to_the_exact_conditional_distribution(count: int) -> None:
    model = categorical()
    p = enumerated(model, FIXED)
    every, generator = rows(FIXED, count), torch.Generator().manual_seed(2)
    found, _ = particle_filter(model, SampleRequest(given=every, generator=generator), particles=60)
    assert (found[every.known] == every.values[every.known]).all()
    assert_distributed_as(found, p)
    one, _ = particle_filter(model, SampleRequest(given=every, generator=generator), particles=1)
    with pytest.raises(AssertionError):  # one copy does not see the known values ahead
        assert_distributed_as(one, p)


def test_temperature_prefix_and_condition() -> None:
    """A prefix is a condition of the estimate, and the class vector reaches every copy."""
    model = categorical(1.0)
    prefix = {0: 2}
    every = given({**prefix, 4: 0, 5: 1}, count=4_000)
    generator = torch.Generator().manual_seed(4)
    found, log_p = particle_filter(
        model,
        SampleRequest(given=every, sampling=Sampling(temperature=0.8), generator=generator),
        particles=40,
        n_prefix=1,
    )
    exact_p = enumerated(model, {**prefix, 4: 0, 5: 1}, 0.8)
    assert_distributed_as(found, exact_p)
    of_prefix = enumerated(model, prefix, 0.8)
    p = float(of_prefix[exact_p > 0].sum())
    error = float(log_p.exp().std()) / math.sqrt(4_000)
    assert abs(float(log_p.exp().mean()) - p) < 4 * error

    condition = Condition(torch.randn(3, 1, D))
    few = rows(FIXED, 3)
    one, _ = particle_filter(
        model,
        SampleRequest(given=few, condition=condition, generator=generator.manual_seed(1)),
        particles=4,
    )
    assert (one[few.known] == few.values[few.known]).all()
    first = Condition(condition.vectors[:1].expand(3, -1, -1))
    fixed = {0: 2, 1: 0, 2: 1}
    _, by_row = particle_filter(
        model, SampleRequest(given=rows(fixed, 3), condition=condition), particles=2
    )
    _, by_first = particle_filter(
        model, SampleRequest(given=rows(fixed, 3), condition=first), particles=2
    )
    assert by_row[0] == pytest.approx(float(by_first[0]))
    assert by_row[1] != pytest.approx(float(by_first[1]))


def test_a_constraint_concerns_unknown_values_alone() -> None:
    def never_two(values: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[False, False, True]]).expand(len(values), -1)

    some = rows({2: 2}, 200)
    found, _ = particle_filter(
        categorical(1.0), SampleRequest(given=some, constraint=never_two), particles=3
    )
    assert (found[:, 2] == 2).all()
    assert not (found[~some.known] == 2).any()
