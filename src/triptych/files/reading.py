"""Reading of many files: by several processes, in order, with a progress display."""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

from triptych.files.progress import display

Item = TypeVar("Item")
Result = TypeVar("Result")

ALONE_SECONDS = 0.5
"""Seconds that this process reads alone, so that few files need no workers and no display."""
CHUNK_SECONDS = 0.05
"""Work that is sent to a worker at once, in seconds."""
CHUNKS_AHEAD = 3
"""Chunks of each worker that are on their way, which bounds the memory."""
MAX_WORKERS = 32
"""More processes than this wait for the one that collects the results."""


def read_in_order(
    read: Callable[[Item], Result], items: Iterable[Item], *, count: int, what: str
) -> Generator[Result, None, None]:
    """Yield read(item) for each item, in order; the number of processes changes nothing else.

    This process reads alone for ALONE_SECONDS, then a process for each available core does. An
    exception of `read` is raised in its turn. The workers end with the iteration, however it ends.

    read: function of a module, or a partial of one, whose items and results can be pickled. count:
    number of items. what: name of the items for the display.
    """
    progress, done, spent = display(what), 0, 0.0
    rest = iter(items)
    for item in rest:
        began = time.perf_counter()
        result = read(item)
        spent, done = spent + time.perf_counter() - began, done + 1
        yield result
        if spent > ALONE_SECONDS:
            break
    else:
        return
    import torch
    from torch.utils.data import DataLoader

    size = max(1, int(CHUNK_SECONDS * done / spent))
    shares = iter(lambda: list(islice(rest, size)), [])
    try:
        workers = worker_count(-(-(count - done) // size))
        loader: Any = DataLoader(
            _Share(read),  # type: ignore[arg-type]
            batch_sampler=shares,
            num_workers=workers,
            collate_fn=tuple,  # as it is
            worker_init_fn=_leave_ctrl_c,
            prefetch_factor=CHUNKS_AHEAD if workers else None,
            generator=torch.Generator(),  # not the global one, whose numbers training uses
        )
        for results, error in loader:
            for result in results:
                done += 1
                progress(done, count)
                yield result
            if error is not None:
                raise error
    except GeneratorExit:  # enough was read
        progress(done, done)
        raise


class _Share(Generic[Item, Result]):
    """Data set whose batches are the results of several items up to an error, and the error."""

    def __init__(self, read: Callable[[Item], Result]) -> None:
        self.read = read

    def __getitems__(self, items: list[Item]) -> tuple[list[Result], Exception | None]:
        results: list[Result] = []
        for item in items:
            try:
                results.append(self.read(item))
            except Exception as error:
                error.add_note(traceback.format_exc())  # its traceback is not sent
                return results, error
        return results, None


def _leave_ctrl_c(worker: int) -> None:
    """Leave Ctrl-C to the main process, with which the workers end, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def rank_and_world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes; (0, 1) without DDP."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def worker_count(most: int) -> int:
    """Return the number of processes to read with, at most `most`; 0 where one would be all.

    Of several processes that train a model, rank 0 reads first and the others share the cores.
    """
    rank, world = rank_and_world()
    cores = available_cores() // (world - 1 if rank else 1)
    workers = min(cores, MAX_WORKERS, most)
    # A daemonic process may not start others.
    return 0 if workers < 2 or multiprocessing.current_process().daemon else workers


def available_cores() -> int:
    """Return the number of cores that this process may use (Linux: its CPU affinity)."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
