"""Loaders whose order is a function of (seed, epoch) and that go on exactly where they stopped."""

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

from triptych.errors import UserError

Plan: TypeAlias = Callable[[int, torch.Generator], list[list[int]]]
"""(epoch, generator of seed and epoch) -> the epoch's batches, each a list of item numbers."""

MakeBatch: TypeAlias = Callable[[list[int], torch.Generator | None], Any]
"""(item numbers, generator for augmentation or None for none) -> what the task's methods read.

Lightning moves the result to the device: a tensor, a tuple, list or dict of tensors, a dataclass
that is not frozen, or an object with a method `to(device)`.
"""


def derive_seed(*numbers: int) -> int:
    """Mix whole numbers into one seed of 63 bits; other numbers or another order, another seed."""
    text = ",".join(str(int(number)) for number in numbers)
    digest = hashlib.blake2b(text.encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_for(*numbers: int) -> torch.Generator:
    """Return a CPU generator that depends on these numbers only."""
    return torch.Generator().manual_seed(derive_seed(*numbers))


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the number of processes; (0, 1) where there is only one."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def shuffled_batches(n_items: int, batch_size: int) -> Plan:
    """Return the plan that shuffles all items every epoch and cuts them into batches.

    Every item occurs once an epoch; the last batch is the smaller one.
    """

    def plan(epoch: int, generator: torch.Generator) -> list[list[int]]:
        order = torch.randperm(n_items, generator=generator).tolist()
        return cut(order, batch_size)

    return plan


def cut(items: Sequence[int], batch_size: int) -> list[list[int]]:
    """Cut item numbers into runs of batch_size, in order; the last run may be shorter."""
    if batch_size < 1:
        raise UserError(f"The batch size is {batch_size}; it must be at least 1.")
    return [list(items[start : start + batch_size]) for start in range(0, len(items), batch_size)]


class ResumableLoader:
    """Training batches in an endless order that a few numbers describe.

    The order is the batches of plan(0), then plan(1), ...: a function of (seed, epoch). Batch i of
    epoch e is augmented with a generator of (seed, e, i). In distributed training the ranks take
    turns on that one order, so together they see each batch once and none is dropped or repeated.

    Iterating yields `len(loader)` batches from where the loader stands, so that all epochs have one
    length (Lightning fixes it once) even where the plans differ by a batch or two; what one pass
    leaves over the next one takes. `state_dict()` counts batches handed out; whoever looks ahead
    must ask before he does. Lightning does not look ahead in loaders that have a length.

    n_items: number of training items; 0 raises UserError.
    plan, make_batch: see `Plan` and `MakeBatch`.
    seed: of the order and of the augmentation.
    name: what the error message calls the training set.
    """

    def __init__(
        self,
        n_items: int,
        plan: Plan,
        make_batch: MakeBatch,
        *,
        seed: int,
        name: str = "The training set",
    ) -> None:
        if n_items < 1:
            raise UserError(f"{name} is empty; training needs at least one item.")
        self.n_items = n_items
        self.plan = plan
        self.make_batch = make_batch
        self.seed = seed
        self.name = name
        self.batches_taken = 0
        """Batches handed out so far, on all ranks together, over all epochs."""
        self.seconds_taken = 0.0
        """Seconds that making batches has taken so far in this process: the training waits."""
        self._epoch = 0
        self._index = 0
        self._planned: dict[int, list[list[int]]] = {}
        self._first_length = len(self.batches_of(0))

    def __len__(self) -> int:
        """Batches per epoch for one rank."""
        _, world = rank_and_world()
        return -(-self._first_length // world)

    def __iter__(self) -> Iterator[Any]:
        """Yield one epoch's number of batches from where the loader stands."""
        rank, world = rank_and_world()
        for _ in range(len(self)):
            began = time.perf_counter()
            mine: tuple[int, int] | None = None
            for turn in range(world):
                if turn == rank:
                    mine = (self._epoch, self._index)
                self._advance()
            assert mine is not None
            epoch, index = mine
            items = self.batches_of(epoch)[index]
            # The state moved on already: a batch that is handed out counts as taken.
            batch = self.make_batch(items, generator_for(self.seed, epoch, index, 1))
            self.seconds_taken += time.perf_counter() - began
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return where the loader stands, as plain numbers; equal on all ranks."""
        return {
            "seed": self.seed,
            "n_items": self.n_items,
            "epoch": self._epoch,
            "index": self._index,
            "batches_taken": self.batches_taken,
            "plan": self._fingerprint(),
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Stand where `state_dict()` was taken; UserError where seed or number of items differ."""
        for key, word in (("seed", "seed"), ("n_items", "number of training items")):
            if state[key] != getattr(self, key):
                raise UserError(
                    f"The run was made with {word} {state[key]}, this one has "
                    f"{getattr(self, key)}; to resume with the same data order they must be equal."
                )
        before = self._epoch, self._index
        self._epoch, self._index = state["epoch"], state["index"]
        if state.get("plan", self._fingerprint()) != self._fingerprint() or self._index >= len(
            self.batches_of(self._epoch)
        ):
            self._epoch, self._index = before
            raise UserError(
                "The run was made with other batches than this one's; to resume with the same data "
                "order, the sizes of batches and the lengths of items must be as they were."
            )
        self.batches_taken = state["batches_taken"]

    def _fingerprint(self) -> int:
        """A number that differs, all but surely, where the epoch's batches differ."""
        return zlib.crc32(repr(self.batches_of(self._epoch)).encode())

    def _advance(self) -> None:
        self.batches_taken += 1
        self._index += 1
        if self._index >= len(self.batches_of(self._epoch)):
            self._epoch += 1
            self._index = 0

    def batches_of(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch, on all ranks together."""
        if epoch not in self._planned:
            batches = self.plan(epoch, generator_for(self.seed, epoch))
            if not batches:
                raise UserError(f"{self.name} gives no batch in epoch {epoch}.")
            # Ranks that take turns look at two epochs at once around a border; older ones can go.
            self._planned = {e: b for e, b in self._planned.items() if e >= epoch - 1}
            self._planned[epoch] = batches
        return self._planned[epoch]


def padding_share(batches: Sequence[Sequence[int]], *lengths: NDArray[np.int64]) -> float:
    """Return the share of padding where the rows of each batch are as long as its longest, 0 to 1.

    lengths: of every item, int64 [N]; several arrays for items of several sides.
    """
    room = sum(int(side[batch].max()) * len(batch) for batch in batches for side in lengths)
    real = sum(int(side[batch].sum()) for batch in batches for side in lengths)
    return 1.0 - real / room if room else 0.0


class FixedBatches:
    """The same batches every time, each item once, the last batch included: for validation.

    In distributed training rank r takes batches r, r + world, ...; a rank that has none left yields
    None, so that all ranks take the same number of steps; `validation_step` skips None.
    """

    def __init__(self, batches: Sequence[Sequence[int]], make_batch: MakeBatch) -> None:
        self.batches = [list(batch) for batch in batches if len(batch)]
        self.make_batch = make_batch

    def __len__(self) -> int:
        """Batches for one rank."""
        _, world = rank_and_world()
        return -(-len(self.batches) // world)

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's batches, made without augmentation."""
        rank, world = rank_and_world()
        for start in range(0, len(self.batches), world):
            position = start + rank
            if position < len(self.batches):
                yield self.make_batch(self.batches[position], None)
            else:
                yield None


def fixed_batches(
    n_items: int,
    make_batch: MakeBatch,
    *,
    batch_size: int | None = None,
    batches: Sequence[Sequence[int]] | None = None,
    name: str = "The validation set",
) -> FixedBatches:
    """Return a loader for validation: items in order by batch_size, or in the given batches.

    Raises UserError where there is no item, ValueError where given batches do not hold every item
    exactly once (a metric over them would not be the whole split's).
    """
    if n_items < 1:
        raise UserError(f"{name} is empty; at least one item is needed.")
    if (batch_size is None) == (batches is None):
        raise ValueError("give either batch_size or batches")
    if batches is None:
        assert batch_size is not None
        batches = cut(range(n_items), batch_size)
    if sorted(item for batch in batches for item in batch) != list(range(n_items)):
        raise ValueError(f"the batches must hold each of the {n_items} items exactly once")
    return FixedBatches(batches, make_batch)
