"""Reading of many files: by several processes, in order, with a progress display."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

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

    This process reads alone at first. If files are left after ALONE_SECONDS, the other ones are
    read by a process for each available core. An exception of `read` is raised in its turn. The
    workers end with the iteration, also where it is given up.

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
    size = max(1, int(CHUNK_SECONDS * done / spent))
    shares = iter(lambda: list(islice(rest, size)), [])
    try:
        workers = worker_count(-(-(count - done) // size))
        for results, error in _in_workers(_Share(read), shares, workers):
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
    """Function that reads several items: returns the results up to an error, and the error."""

    def __init__(self, read: Callable[[Item], Result]) -> None:
        self.read = read

    def __call__(self, items: list[Item]) -> tuple[list[Result], Exception | None]:
        results: list[Result] = []
        for item in items:
            try:
                results.append(self.read(item))
            except Exception as error:
                error.add_note(traceback.format_exc())  # its traceback is not sent
                return results, error
        return results, None


def _in_workers(
    work: Callable[[Item], Result], items: Iterator[Item], workers: int
) -> Iterator[Result]:
    """Yield work(item) in order, from this number of processes, or from this one for 0."""
    if workers < 1:
        yield from map(work, items)
        return
    from concurrent.futures import Future, ProcessPoolExecutor

    waiting: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(workers, initializer=_begin_worker)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= CHUNKS_AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Leave Ctrl-C to the main process, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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
