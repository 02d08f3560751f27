"""Data loaders: training batches in a resumable order, and fixed batches for validation."""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from triptych.errors import UserError
from triptych.files.reading import rank_and_world
from triptych.training.loading.batches import Batches, Items, Plan, generator_for

MakeBatch: TypeAlias = Callable[[Items, torch.Generator | None], Any]
"""Function of (item numbers, generator for augmentation or None) that returns a batch.

A batch is a tensor, a tuple, list or dict of tensors, a dataclass that is not frozen, or an object
with a method `to(device)`: Lightning moves it to the device. Tensors have a dtype that numpy has.
"""

Key: TypeAlias = tuple[Items, tuple[int, ...] | None]
"""Item numbers of a batch, and numbers that seed its augmentation or None for no augmentation."""


class _Batches(Dataset[Any]):
    def __init__(self, make_batch: MakeBatch) -> None:
        self.make_batch = make_batch

    def __getitem__(self, key: Key) -> Any:
        items, seeds = key
        batch = self.make_batch(items, None if seeds is None else generator_for(*seeds))
        if get_worker_info() is None:
            return batch
        # Tensors would be sent one by one as files of shared memory, arrays go through one pipe.
        return apply_to_collection(batch, Tensor, Tensor.numpy)


class _Tensors(DataLoader[Any]):
    """Batches of these keys in order, as tensors; workers start with the first iteration."""

    def __init__(
        self, make_batch: MakeBatch, keys: Iterable[Key], workers: int, *, pinned: bool
    ) -> None:
        super().__init__(
            _Batches(make_batch),
            batch_size=None,
            collate_fn=lambda batch: batch,
            sampler=keys,
            num_workers=workers,
            persistent_workers=workers > 0,
            # `make_batch` may be a closure, and a fork needs no copy of the data.
            multiprocessing_context="fork" if workers else None,
            generator=torch.Generator(),  # otherwise a number of the global generator is used
        )
        self.pinned = pinned

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            if self.num_workers:
                batch = apply_to_collection(batch, np.ndarray, torch.from_numpy)
            if self.pinned:
                batch = apply_to_collection(batch, Tensor, Tensor.pin_memory)
            yield batch


class _Loader:
    """Base of both loaders: how their batches are made."""

    make_batch: MakeBatch
    workers = 0
    """Processes that make batches ahead; 0 makes each one when it is asked for."""
    pin_memory = False
    """Whether the batches lie in pinned memory, from which a GPU copies while it computes."""
    _running: Any = None

    def _start(self, keys: Iterable[Key]) -> _Tensors:
        return _Tensors(self.make_batch, keys, self.workers, pinned=self.pin_memory)

    def close(self) -> None:
        """End the workers; the next iteration starts others."""
        self._running = None


class _Order:
    """Batches of each epoch, and their endless order from a position (epoch, index).

    The workers' keys come from here: keys of the loader itself would keep its workers alive.
    """

    def __init__(self, plan: Plan, seed: int, name: str) -> None:
        self.plan = plan
        self.seed = seed
        self.name = name
        self._planned: dict[int, Batches] = {}

    def batches_of(self, epoch: int) -> Batches:
        if epoch not in self._planned:
            batches = self.plan(epoch, generator_for(self.seed, epoch))
            if not len(batches):
                raise UserError(f"{self.name} is empty in epoch {epoch}; expected a batch or more")
            self._planned = {e: b for e, b in self._planned.items() if e >= epoch - 1}
            self._planned[epoch] = batches
        return self._planned[epoch]

    def positions(self, epoch: int, index: int) -> Iterator[tuple[int, int]]:
        while True:
            yield epoch, index
            index += 1
            if index >= len(self.batches_of(epoch)):
                epoch, index = epoch + 1, 0

    def keys(self, epoch: int, index: int) -> Iterator[Key]:
        rank, world = rank_and_world()
        for at, number in islice(self.positions(epoch, index), rank, None, world):
            yield self.batches_of(at)[number], (self.seed, at, number, 1)


class ResumableLoader(_Loader):
    """Training batches in an endless order: plan(0), plan(1), ..., a function of (seed, epoch).

    Batch i of epoch e is augmented with a generator of (seed, e, i). With DDP the ranks take turns
    in this order. An iteration yields `len(loader)` batches, whatever the plans' lengths (Lightning
    needs epochs of one length), and the next one goes on. `state_dict()` counts the batches handed
    out, not those that workers have prepared. Workers go on from one epoch to the next. Neither
    torch's DataLoader nor Lightning resumes in the middle of an epoch.

    name: of the training set, for messages. n_parts: number of plans that are one epoch; an "epoch"
    of the plan, the seeds and the state is then one part. UserError for a plan without batches.
    """

    def __init__(
        self,
        n_items: int,
        plan: Plan,
        make_batch: MakeBatch,
        *,
        seed: int,
        name: str = "the training set",
        n_parts: int = 1,
    ) -> None:
        self.n_items = n_items
        self.make_batch = make_batch
        self.seed = seed
        self.batches_taken = 0
        """Batches handed out on all ranks, over all epochs."""
        self.seconds_taken = 0.0
        """Seconds that this process has waited for batches."""
        self._epoch = 0
        self._index = 0
        self._order = _Order(plan, seed, name)
        self._first_length = len(self.batches_of(0))
        for number in range(1, n_parts):
            self._first_length += len(plan(number, generator_for(seed, number)))

    def __len__(self) -> int:
        """Batches per epoch and rank."""
        _, world = rank_and_world()
        return -(-self._first_length // world)

    def __iter__(self) -> Iterator[Any]:
        _, world = rank_and_world()
        for _ in range(len(self)):
            began = time.perf_counter()
            if self._running is None:
                self._running = iter(self._start(self._order.keys(self._epoch, self._index)))
            batch = next(self._running)
            self.seconds_taken += time.perf_counter() - began
            # The position moves before the batch is trained: a batch handed out counts as taken.
            self._epoch, self._index = next(
                islice(self._order.positions(self._epoch, self._index), world, None)
            )
            self.batches_taken += world
            yield batch

    def batches_of(self, epoch: int) -> Batches:
        """Return the batches of an epoch on all ranks."""
        return self._order.batches_of(epoch)

    def state_dict(self) -> dict[str, int]:
        """Return the position; equal on all ranks."""
        return {
            "epoch": self._epoch,
            "index": self._index,
            "batches_taken": self.batches_taken,
            "processes": rank_and_world()[1],
            "plan": self._fingerprint(self._epoch),
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Set the position; UserError if the batches differ."""
        if state["plan"] != self._fingerprint(state["epoch"]):
            raise UserError(
                "the batches are others than those of the run; seed, data and sizes of batches "
                "must be as they were"
            )
        self._epoch, self._index = state["epoch"], state["index"]
        self.batches_taken = state["batches_taken"]
        self.close()

    def _fingerprint(self, epoch: int) -> int:
        """Return a hash of the epoch's batches."""
        batches = [[int(item) for item in batch] for batch in self.batches_of(epoch)]
        return zlib.crc32(repr(batches).encode())


class FixedBatches(_Loader):
    """The same batches in each iteration, without augmentation, for validation.

    With DDP rank r yields batches r, r + world, ...; a rank without a batch left yields None, so
    that all ranks make the same number of steps.

    batches: item numbers, each item in exactly one batch. UserError if there are none.
    """

    def __init__(
        self, batches: Batches, make_batch: MakeBatch, *, name: str = "the validation set"
    ) -> None:
        if not len(batches):
            raise UserError(f"{name} is empty; at least one item is needed")
        self.batches = batches
        self.make_batch = make_batch

    def __len__(self) -> int:
        """Batches per rank."""
        _, world = rank_and_world()
        return -(-len(self.batches) // world)

    def __iter__(self) -> Iterator[Any]:
        rank, world = rank_and_world()
        mine = range(rank, len(self.batches), world)
        if self._running is None:
            self._running = self._start([(self.batches[number], None) for number in mine])
        yield from self._running
        yield from [None] * (len(self) - len(mine))
