"""Batches hold what they should: every pair once, within the budget, padded at the end."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from triptych.domains.translation.config import DataConfig
from triptych.domains.translation.data import Batch, EncodedPairs
from triptych.domains.translation.model import END, SPECIALS, START, Tokenizers
from triptych.text.batches import plan_batches
from triptych.text.byte_level import BytePairs
from triptych.text.tokenizer import PAD

WORDS = ["ein", "Hund", "läuft", "über", "die", "große", "Wiese", "und", "bellt"]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    both = BytePairs().build(WORDS, 300, SPECIALS)
    return Tokenizers(both, both)


@pytest.fixture(scope="module")
def pairs(tokenizers: Tokenizers) -> EncodedPairs:
    draw = random.Random(0)

    def line() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randrange(1, 12)))

    return EncodedPairs.of([(line(), line()) for _ in range(500)], tokenizers)


def planned(pairs: EncodedPairs, seed: int | None, budget: int = 200) -> list[list[int]]:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    plan = plan_batches(pairs.sizes(range(len(pairs))), budget, generator)
    return [batch.tolist() for batch in plan]


def test_padded_batches_stay_within_the_budget_on_both_sides(pairs: EncodedPairs) -> None:
    for indices in planned(pairs, 0):
        batch = pairs.batch(indices)
        assert batch.source.numel() <= 200
        assert batch.expected.numel() <= 200
        assert batch.target_input.shape == batch.expected.shape


def test_no_pairs_make_no_batches() -> None:
    assert plan_batches(np.zeros((0, 2), dtype=np.int64), 10, None).lengths.tolist() == []


def test_rows_carry_start_and_end_and_pad_behind_them(tokenizers: Tokenizers) -> None:
    encoded = EncodedPairs.of([("ein Hund", "Hund"), ("", "und die große Wiese")], tokenizers)
    batch = encoded.batch([0, 1])
    source, target = tokenizers.source.encode("ein Hund"), tokenizers.target.encode("Hund")
    assert batch.source[0].tolist() == [*source, END]
    # An empty source is END alone, so that no row of keys is all padding.
    assert batch.source[1].tolist() == [END, *[PAD] * len(source)]
    assert batch.target[0, : len(target) + 2].tolist() == [START, *target, END]
    assert (batch.target[0, len(target) + 2 :] == PAD).all()
    assert batch.source_padding.tolist() == (batch.source == PAD).tolist()
    assert batch.target_input[0, 0] == START
    assert torch.equal(batch.expected[:, :-1], batch.target_input[:, 1:])
    lengths = encoded.sizes(range(2))
    assert lengths[:, 0].tolist() == [len(source) + 1, 1]
    assert lengths[:, 1].tolist() == [len(target) + 1, batch.expected.shape[1]]


def test_the_length_filter_counts_the_end_on_both_sides(tokenizers: Tokenizers) -> None:
    source, target = "ein Hund bellt", "Wiese"
    pairs = [(source, target), (target, source), (target, target)]
    encoded = EncodedPairs.of(pairs, tokenizers)
    length = len(tokenizers.source.encode(source)) + 1
    assert encoded.lengths.tolist() == [length, length, len(tokenizers.source.encode(target)) + 1]


@pytest.mark.parametrize("budget", [3, 10, 64, 200, 10_000])
@pytest.mark.parametrize("seed", [None, 0])
def test_batches_are_those_of_the_greedy_rule(
    pairs: EncodedPairs, seed: int | None, budget: int
) -> None:
    """The reference: pair by pair, a batch ends where one more pair would exceed the budget."""
    generator = torch.Generator().manual_seed(seed or 0)
    order = np.arange(len(pairs))
    if seed is not None:
        order = order[torch.randperm(len(order), generator=generator).numpy()]
    difference = np.diff(pairs.sizes(range(len(pairs))))[:, 0] * -1
    sign = np.where(pairs.lengths % 2 == 0, 1, -1)
    order = order[np.lexsort(((sign * difference)[order], pairs.lengths[order]))]
    batches: list[list[int]] = []
    for index in order.tolist():
        if not batches or (len(batches[-1]) + 1) * pairs.lengths[index] > budget:
            batches.append([])
        batches[-1].append(index)
    if seed is not None:
        batches = [batches[i] for i in torch.randperm(len(batches), generator=generator)]
    assert planned(pairs, seed, budget) == batches


def test_the_first_target_is_not_predicted() -> None:
    assert Batch(torch.tensor([[5]]), torch.tensor([[1, 2]])).expected.tolist() == [[2]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocabulary_size": 100}, "must be at least 259"),
        ({"max_length": 1}, "at least 2 tokens"),
        ({"max_tokens": 100, "max_length": 101}, "at most max_tokens 100"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataConfig(**settings)
