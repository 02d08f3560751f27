"""Work that several processes share, each with the whole model on a device of its own.

Every process does the same, with the same random numbers, but for the shares of the model's work;
their results are gathered, so that all processes have the whole. Outside of `sharing` a process
does all of its work itself, also in training, where process 0 alone draws samples.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor, distributed

K = TypeVar("K")
T = TypeVar("T")

_SHARED: ContextVar[bool] = ContextVar("shared", default=False)


@contextmanager
def sharing() -> Iterator[None]:
    """Share the work of the block among the processes of torch.distributed's group."""
    token = _SHARED.set(True)
    try:
        yield
    finally:
        _SHARED.reset(token)


def share() -> tuple[int, int]:
    """Return the number of this process and of those that share the work; (0, 1) for one."""
    if _SHARED.get() and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def gathered(part: T) -> list[T]:
    """Return the parts of all processes, in the order of their numbers."""
    parts = [part] * share()[1]
    if len(parts) > 1:
        distributed.all_gather_object(parts, part)
    return parts


def shared_out(items: Mapping[K, T]) -> dict[K, T]:
    """Return the items of this process: every n-th of them for n processes."""
    rank, world = share()
    return dict(list(items.items())[rank::world])


def added(tensor: Tensor) -> Tensor:
    """Return the sum of the tensors of all processes, in the order of their numbers."""
    _, world = share()
    if world == 1:
        return tensor
    return sum((part.to(tensor.device) for part in gathered(tensor.cpu())), tensor * 0)


def own_rows(batch: int, together: int = 1) -> range | None:
    """Return the rows of a batch that this process computes; None for all.

    together: rows that are computed by one process, a divisor of the batch. A batch with fewer such
    groups than processes is computed by each of them.
    """
    rank, world = share()
    groups = batch // together
    if world == 1 or groups < world:
        return None
    return range(groups * rank // world * together, groups * (rank + 1) // world * together)


def same_on_all(parts: Iterator[Sequence[T]]) -> Iterator[Sequence[T]]:
    """Yield the parts that process 0 reads, on all processes; the others read nothing."""
    rank, world = share()
    if world == 1:
        yield from parts
        return
    more = True
    while more:
        sent: list[Sequence[T] | None] = [None]  # at the end, and where it cannot be read
        try:
            sent = [next(parts, None) if rank == 0 else None]
        finally:
            distributed.broadcast_object_list(sent)
        if more := sent[0] is not None:
            yield sent[0]
