from __future__ import annotations

import pytest
import torch
from dataclass_rules import changeable_dataclasses

from triptych.core.heads import CategoricalHead, MixtureOfLogisticsHead
from triptych.decoding.sampling import filter_logits, sample_category, sample_value
from triptych.types import Sampling

LOGITS = torch.tensor([[0.1, 0.2, 0.3, 0.25, 0.15]]).log()


def kept(sampling: Sampling, logits: torch.Tensor = LOGITS) -> list[int]:
    return (filter_logits(logits, sampling)[0] > -torch.inf).nonzero().flatten().tolist()


def test_top_k_keeps_the_k_most_probable() -> None:
    assert kept(Sampling(top_k=1)) == [2]
    assert kept(Sampling(top_k=3)) == [1, 2, 3]
    assert kept(Sampling(top_k=99)) == [0, 1, 2, 3, 4]
    assert kept(Sampling(top_k=1), torch.zeros(1, 3)) == [0, 1, 2]  # ties stay together


def test_top_p_keeps_the_fewest_that_reach_p() -> None:
    assert kept(Sampling(top_p=0.01)) == [2]  # the most probable one always stays
    assert kept(Sampling(top_p=0.3)) == [2]
    assert kept(Sampling(top_p=0.31)) == [2, 3]
    assert kept(Sampling(top_p=0.76)) == [1, 2, 3, 4]
    assert kept(Sampling(top_p=1.0)) == [0, 1, 2, 3, 4]


def test_a_value_that_is_not_needed_to_reach_p_is_excluded() -> None:
    assert len(kept(Sampling(top_p=0.5), torch.zeros(1, 4))) == 2  # probabilities are exact


def test_filters_work_at_the_temperature() -> None:
    assert kept(Sampling(top_p=0.5, temperature=0.1)) == [2]
    assert kept(Sampling(top_p=0.5, temperature=10.0)) == [1, 2, 3]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_shares_follow_the_distribution(temperature: float) -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = sample_category(
        LOGITS.expand(200_000, -1), Sampling(temperature=temperature), generator
    )
    share = drawn.bincount(minlength=5) / len(drawn)
    expected = (LOGITS[0] / temperature).softmax(-1)
    torch.testing.assert_close(share, expected, rtol=0.0, atol=5e-3)


def test_filtered_values_are_never_drawn() -> None:
    generator = torch.Generator().manual_seed(1)
    drawn = sample_category(LOGITS.expand(5000, -1), Sampling(top_k=2), generator)
    assert set(drawn.tolist()) == {2, 3}


@pytest.mark.parametrize("temperature", [1e-15, 1e-30, 1e-300])
def test_a_very_low_temperature_is_nearly_zero(temperature: float) -> None:
    logits = torch.tensor([[-torch.inf, 90.0, 100.0, -80.0]])
    assert sample_category(logits, Sampling(temperature=temperature)).tolist() == [2]


def test_temperature_zero_is_the_most_probable_and_a_seed_repeats() -> None:
    assert sample_category(LOGITS, Sampling(temperature=0)).tolist() == [2]
    many = LOGITS.expand(100, -1)
    one = sample_category(many, Sampling(), torch.Generator().manual_seed(5))
    other = sample_category(many, Sampling(), torch.Generator().manual_seed(5))
    assert torch.equal(one, other)
    assert not torch.equal(one, sample_category(many, Sampling(), torch.Generator().manual_seed(6)))


def test_a_value_has_the_shape_of_its_head() -> None:
    head = MixtureOfLogisticsHead(4, levels=5, channels=1, components=2)
    assert sample_value(head, head(torch.randn(2, 4)), Sampling()).shape == (2, 1)
    categorical = CategoricalHead(4, 5)
    assert sample_value(categorical, categorical(torch.randn(2, 4)), Sampling(top_p=0.5)).shape == (
        2,
    )


def test_values_of_this_package_cannot_be_changed() -> None:
    assert changeable_dataclasses("triptych.decoding") <= {"Beams"}
