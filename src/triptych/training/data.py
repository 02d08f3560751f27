"""Data loaders: training batches in a resumable order, and fixed batches for validation."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.utils.data import DataLoader, Dataset

from triptych.errors import UserError

Plan: TypeAlias = Callable[[int, torch.Generator], list[list[int]]]
"""Function of (epoch, generator of seed and epoch) that returns the batches of item numbers."""

MakeBatch: TypeAlias = Callable[[list[int], torch.Generator | None], Any]
"""Function of (item numbers, generator for augmentation or None) that returns a batch.

A batch is a tensor, a tuple, list or dict of tensors, a dataclass that is not frozen, or an object
with a method `to(device)`: Lightning moves it to the device.
"""


def derive_seed(*numbers: int) -> int:
    """Return a seed of 63 bits from whole numbers; their order counts."""
    text = ",".join(str(int(number)) for number in numbers)
    digest = hashlib.blake2b(text.encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_for(*numbers: int) -> torch.Generator:
    """Return a CPU generator seeded with these numbers."""
    return torch.Generator().manual_seed(derive_seed(*numbers))


def rank_and_world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes; (0, 1) without DDP."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def shuffled_batches(n_items: int, batch_size: int) -> Plan:
    """Return a plan that shuffles all items in each epoch; the last batch may be smaller."""

    def plan(epoch: int, generator: torch.Generator) -> list[list[int]]:
        return cut(torch.randperm(n_items, generator=generator).tolist(), batch_size)

    return plan


def cut(items: Sequence[int], batch_size: int) -> list[list[int]]:
    """Return the items in lists of batch_size, in order; the last list may be shorter."""
    return [list(items[start : start + batch_size]) for start in range(0, len(items), batch_size)]


class _Batches(Dataset[Any]):
    """Batches by (item numbers, numbers that seed the augmentation, or None for none)."""

    def __init__(self, make_batch: MakeBatch) -> None:
        self.make_batch = make_batch

    def __getitem__(self, key: tuple[list[int], tuple[int, ...] | None]) -> Any:
        items, seeds = key
        return self.make_batch(items, None if seeds is None else generator_for(*seeds))


def _load(
    make_batch: MakeBatch, keys: Sequence[tuple[list[int], tuple[int, ...] | None]], workers: int
) -> Iterator[Any]:
    """Return the batches of these keys in order, made by a number of worker processes, or here."""
    loader = DataLoader(
        _Batches(make_batch),
        batch_size=None,
        collate_fn=lambda batch: batch,
        sampler=keys,
        num_workers=workers,
        pin_memory=workers > 0 and torch.cuda.is_available(),
        # `make_batch` may be a closure, and a fork needs no copy of the data.
        multiprocessing_context="fork" if workers else None,
        generator=torch.Generator(),  # otherwise a random number of the global generator is used
    )
    return iter(loader)


class ResumableLoader:
    """Training batches in an endless order: plan(0), plan(1), ..., a function of (seed, epoch).

    Batch i of epoch e is augmented with a generator of (seed, e, i). With DDP the ranks take turns
    in this order, so that no batch is dropped or repeated.

    An iteration yields `len(loader)` batches, also if the plans differ in length (Lightning needs
    epochs of one length); the next iteration continues the order. `state_dict()` counts the batches
    handed out, not those that workers have prepared.

    Neither torch's DataLoader nor Lightning resumes in the middle of an epoch.

    n_items: number of training items. name: of the training set, for messages. workers: number of
    processes that make batches; 0 makes them in this process. UserError for an epoch without items.
    """

    def __init__(
        self,
        n_items: int,
        plan: Plan,
        make_batch: MakeBatch,
        *,
        seed: int,
        name: str = "the training set",
        workers: int = 0,
    ) -> None:
        self.n_items = n_items
        self.plan = plan
        self.make_batch = make_batch
        self.seed = seed
        self.name = name
        self.workers = workers
        self.batches_taken = 0
        """Batches handed out on all ranks, over all epochs."""
        self.seconds_taken = 0.0
        """Seconds that this process has waited for batches."""
        self._epoch = 0
        self._index = 0
        self._planned: dict[int, list[list[int]]] = {}
        self._first_length = len(self.batches_of(0))

    def __len__(self) -> int:
        """Batches per epoch and rank."""
        _, world = rank_and_world()
        return -(-self._first_length // world)

    def __iter__(self) -> Iterator[Any]:
        """Yield `len(self)` batches from the current position."""
        rank, world = rank_and_world()
        turns = list(self._positions(len(self) * world))
        mine = [
            (self.batches_of(epoch)[index], (self.seed, epoch, index, 1))
            for epoch, index in turns[rank:-1:world]
        ]
        batches = _load(self.make_batch, mine, self.workers)
        for number in range(len(mine)):
            began = time.perf_counter()
            batch = next(batches)
            self.seconds_taken += time.perf_counter() - began
            # The position moves before the batch is trained: a batch handed out counts as taken.
            self._epoch, self._index = turns[(number + 1) * world]
            self.batches_taken += world
            yield batch

    def _positions(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield `count` (epoch, index) from the current position, and the one that follows."""
        epoch, index = self._epoch, self._index
        for _ in range(count):
            yield epoch, index
            index += 1
            if index >= len(self.batches_of(epoch)):
                epoch, index = epoch + 1, 0
        yield epoch, index

    def batches_of(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch on all ranks."""
        if epoch not in self._planned:
            batches = self.plan(epoch, generator_for(self.seed, epoch))
            if not batches:
                raise UserError(f"{self.name} is empty in epoch {epoch}; expected a batch or more")
            self._planned = {e: b for e, b in self._planned.items() if e >= self._epoch - 1}
            self._planned[epoch] = batches
        return self._planned[epoch]

    def state_dict(self) -> dict[str, int]:
        """Return the position; equal on all ranks."""
        return {
            "seed": self.seed,
            "n_items": self.n_items,
            "epoch": self._epoch,
            "index": self._index,
            "batches_taken": self.batches_taken,
            "plan": self._fingerprint(self._epoch),
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Set the position; UserError if seed, number of items or batches differ."""
        here = {**self.state_dict(), "plan": self._fingerprint(state["epoch"])}
        for key, word in (
            ("seed", "seed"),
            ("n_items", "number of training items"),
            ("plan", "batches whose hash is"),
        ):
            if state[key] != here[key]:
                raise UserError(
                    f"the run was made with {word} {state[key]}, this one has {here[key]}; to "
                    "resume with the same data order, seed, items and sizes of batches must be "
                    "as they were"
                )
        self._epoch, self._index = state["epoch"], state["index"]
        self.batches_taken = state["batches_taken"]

    def _fingerprint(self, epoch: int) -> int:
        """Return a hash of the epoch's batches."""
        return zlib.crc32(repr(self.batches_of(epoch)).encode())


class FixedBatches:
    """The same batches in each iteration, without augmentation, for validation.

    With DDP rank r yields batches r, r + world, ...; a rank without a batch left yields None, so
    that all ranks make the same number of steps.

    batches: item numbers, each item in exactly one batch. name: of the items, for the UserError if
    there are none. workers: as for `ResumableLoader`.
    """

    def __init__(
        self,
        batches: Sequence[list[int]],
        make_batch: MakeBatch,
        *,
        name: str = "the validation set",
        workers: int = 0,
    ) -> None:
        if not batches:
            raise UserError(f"{name} is empty; at least one item is needed")
        self.batches = batches
        self.make_batch = make_batch
        self.workers = workers

    def __len__(self) -> int:
        """Batches per rank."""
        _, world = rank_and_world()
        return -(-len(self.batches) // world)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of this rank."""
        rank, world = rank_and_world()
        mine = [(batch, None) for batch in self.batches[rank::world]]
        yield from _load(self.make_batch, mine, self.workers)
        yield from [None] * (len(self) - len(mine))


def padding_share(batches: Sequence[Sequence[int]], *lengths: NDArray[np.int64]) -> float:
    """Return the share of padding, 0 to 1, if each batch is as long as its longest row.

    lengths: lengths of all items, int64 [N]; one array for each side of an item.
    """
    room = sum(int(side[batch].max()) * len(batch) for batch in batches for side in lengths)
    real = sum(int(side[batch].sum()) for batch in batches for side in lengths)
    return 1.0 - real / room if room else 0.0
