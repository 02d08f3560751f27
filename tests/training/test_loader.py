"""The order of the data is a function of seed and epoch, and goes on exactly where it stopped."""

from __future__ import annotations

import gc
import multiprocessing
import os
from itertools import pairwise
from typing import Any

import pytest
import torch
from toy_task import uneven_plan

from triptych.errors import UserError
from triptych.training.loading import loader as module
from triptych.training.loading.batches import (
    cut,
    derive_seed,
    generator_for,
    shuffled_batches,
)
from triptych.training.loading.loader import FixedBatches, ResumableLoader


def numbers(items: list[int], generator: torch.Generator | None) -> tuple[list[int], int]:
    """The items and what the augmentation drew."""
    drawn = int(torch.randint(1 << 30, (1,), generator=generator)) if generator else -1
    return [int(item) for item in items], drawn


def make(n: int = 10, size: int = 3, seed: int = 0, **more: Any) -> ResumableLoader:
    return working(ResumableLoader(n, shuffled_batches(n, size), numbers, seed=seed), **more)


def working(loader: Any, workers: int = 0) -> Any:
    loader.workers = workers
    return loader


def epochs(loader: ResumableLoader | FixedBatches, count: int) -> list[Any]:
    return [batch for _ in range(count) for batch in loader]


def test_every_item_once_an_epoch_in_an_order_of_seed_and_epoch() -> None:
    loader = make()
    assert len(loader) == 4
    first, second = list(loader), list(loader)
    for epoch in (first, second):
        assert sorted(item for items, _ in epoch for item in items) == list(range(10))
    assert first != second
    assert epochs(make(), 2) == first + second
    assert epochs(make(seed=1), 1) != first


def test_augmentation_depends_on_seed_epoch_and_batch_not_on_other_randomness() -> None:
    calm = epochs(make(), 2)
    torch.manual_seed(99)
    torch.rand(7)
    assert epochs(make(), 2) == calm
    drawn = [draw for _, draw in calm]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    ("cut", "workers"),
    [
        *((cut, 0) for cut in range(9)),
        (3, 2),
        *(pytest.param(cut, 2, marks=pytest.mark.slow) for cut in range(9) if cut != 3),
    ],
)
def test_state_of_a_cut_loader_gives_the_rest(cut: int, workers: int) -> None:
    """Batches that workers have prepared and nobody has taken do not count."""
    whole = epochs(make(), 3)
    loader = make(workers=workers)
    taken = []
    while len(taken) < cut:
        for batch in loader:
            taken.append(batch)
            if len(taken) == cut:
                break
    other = make(workers=workers)
    other.load_state_dict(loader.state_dict())
    assert other.batches_taken == cut
    assert (taken + epochs(other, 3))[: len(whole)] == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_a_running_loader_takes_an_earlier_state_over(workers: int) -> None:
    loader = make(workers=workers)
    state = loader.state_dict()
    first = epochs(loader, 2)
    loader.load_state_dict(state)
    assert epochs(loader, 2) == first


def process(items: Any, generator: torch.Generator | None) -> dict[str, torch.Tensor]:
    return {"pid": torch.tensor(os.getpid()), "items": torch.tensor([int(i) for i in items])}


def test_workers_go_on_from_one_epoch_to_the_next() -> None:
    loader = working(ResumableLoader(10, shuffled_batches(10, 3), process, seed=0), 2)
    fixed = working(FixedBatches(cut(range(10), 3), process), 2)
    for either in (loader, fixed):
        batches = epochs(either, 3)
        pids = {int(batch["pid"]) for batch in batches}
        assert len(pids) == 2
        assert os.getpid() not in pids
        assert all(batch["items"].dtype == torch.int64 for batch in batches)
        either.close()


@pytest.mark.parametrize("kind", ["training", "fixed"])
def test_a_loader_that_is_dropped_ends_its_workers(kind: str) -> None:
    """By the count of references alone: torch waits 5 s for each worker in a collected cycle."""
    loader: Any = make(workers=2)
    if kind == "fixed":
        loader = working(FixedBatches(cut(range(10), 3), numbers), 2)
    gc.collect()
    gc.disable()
    try:
        next(iter(loader))
        assert len(multiprocessing.active_children()) == 2
        del loader
        assert not multiprocessing.active_children()
    finally:
        gc.enable()


def test_a_validation_that_stops_early_begins_anew() -> None:
    fixed = working(FixedBatches(cut(range(10), 2), numbers), 2)
    first = next(iter(fixed))
    again = list(fixed)
    assert again[0] == first
    assert len(again) == 5


def test_epochs_of_uneven_length_lose_and_repeat_nothing() -> None:
    loader = ResumableLoader(21, uneven_plan, numbers, seed=0)
    assert len(loader) == 7
    planned = [
        list(items) for epoch in range(4) for items in uneven_plan(epoch, generator_for(0, epoch))
    ]
    got = [items for items, _ in epochs(loader, 4)]
    assert got == planned[:28]


@pytest.mark.parametrize("world", [2, 3, 5])
def test_ranks_share_one_order(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = epochs(make(), 3)
    parts, states = [], []
    for rank in range(world):
        monkeypatch.setattr(module, "rank_and_world", lambda rank=rank: (rank, world))
        loader = make()
        parts.append(epochs(loader, 2))
        states.append(loader.state_dict())
    assert all(one == other for one, other in pairwise(states)), "rank 0 saves for all"
    taken = [batch for step in zip(*parts, strict=True) for batch in step]
    assert taken == alone[: len(taken)]


def test_empty_training_set_and_empty_plan_are_user_errors() -> None:
    with pytest.raises(UserError, match="training set is empty"):
        make(n=0)
    with pytest.raises(UserError, match="empty in epoch 0"):
        ResumableLoader(3, lambda epoch, generator: [], numbers, seed=0)


def test_another_seed_or_size_cannot_take_a_state_over() -> None:
    state = make().state_dict()
    with pytest.raises(UserError, match="batches are others"):
        make(seed=1).load_state_dict(state)
    with pytest.raises(UserError, match="batches are others"):
        make(n=11).load_state_dict(state)


def test_batches_of_another_size_cannot_take_a_state_over() -> None:
    loader = ResumableLoader(10, shuffled_batches(10, 2), numbers, seed=0)
    next(iter(loader))
    list(loader)  # one batch into the second epoch
    state = loader.state_dict()
    other = ResumableLoader(10, shuffled_batches(10, 5), numbers, seed=0)
    with pytest.raises(UserError, match="batches are others"):
        other.load_state_dict(state)
    assert (
        other.state_dict()
        == ResumableLoader(10, shuffled_batches(10, 5), numbers, seed=0).state_dict()
    )


def test_fixed_batches_hold_every_item_once_and_nothing_is_augmented() -> None:
    batches = list(FixedBatches(cut(range(10), 4), numbers))
    assert [items for items, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert all(draw == -1 for _, draw in batches)
    with pytest.raises(UserError, match="validation set is empty"):
        FixedBatches([], numbers)


def test_workers_make_the_same_batches_and_use_no_global_random_numbers() -> None:
    torch.manual_seed(3)
    batches = cut(range(10), 4)
    fixed = [list(working(FixedBatches(batches, numbers), workers)) for workers in (0, 2)]
    assert fixed[0] == fixed[1]
    assert epochs(make(workers=2), 2) == epochs(make(), 2)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))


def test_fixed_batches_give_all_ranks_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for rank in range(4):
        monkeypatch.setattr(module, "rank_and_world", lambda rank=rank: (rank, 4))
        loader = FixedBatches(cut(range(10), 2), numbers)
        batches = list(loader)
        assert len(batches) == len(loader) == 2
        seen += [batch[0] for batch in batches if batch is not None]
    assert sorted(item for items in seen for item in items) == list(range(10))


def test_seeds_of_different_numbers_differ() -> None:
    seeds = {derive_seed(a, b) for a in range(30) for b in range(30)}
    assert len(seeds) == 900
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(1, 12) != derive_seed(11, 2)
