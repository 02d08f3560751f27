"""Heads side by side: a thread of its own for some of them, instead of all threads for each.

PyTorch shares every operation among its threads, and they wait for each other at its end. Attention
in parts is hundreds of short operations, and no thread computes during Python's work between them.
Here each thread takes whole heads through all of that by itself. On two cores with AMX, forward and
backward, 8 heads of 64, time over that of all threads together (in turn in one process): relative
attention, L 1024 0.88 to 0.98, L 2048 0.90 to 0.98; beside other programs, which take a part of one
core so that all wait for it, 0.8. Below 2**22 weights lanes do not pay: L 512 1.03 to 1.1.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")
Result = TypeVar("Result")

FEWEST_WEIGHTS = 2**22
"""Weights of a call from which lanes pay."""
MOST_LANES = 4
"""Python runs in one thread at a time, and more lanes wait for it; not measured beyond 2."""

_pools: dict[tuple[int, int, int], ThreadPoolExecutor] = {}
_making = threading.Lock()


def n_lanes(like: Tensor, heads: int, weights: int) -> int:
    """How many lanes a call with so many heads and weights in all has; 1: nothing side by side.

    As many as give each the same number of heads and of PyTorch's threads.
    """
    if like.device.type != "cpu" or type(like) is not Tensor or weights < FEWEST_WEIGHTS:
        return 1
    if _is_followed() or not torch.backends.openmp.is_available():
        return 1  # without OpenMP a thread cannot have a number of threads of its own
    threads = torch.get_num_threads()
    lanes = range(min(threads, heads, MOST_LANES), 1, -1)
    return next((n for n in lanes if heads % n == threads % n == 0), 1)


def parts_of(batch: int, heads: int, most: int, lanes: int) -> list[tuple[slice, slice]]:
    """Parts of the batch and of the heads, of at most `most` rows each but at least one.

    Every lane gets as many heads; `lanes` divides them.
    """
    of_lane = heads // lanes
    together = -(-of_lane // -(-of_lane // max(1, most)))
    sentences = max(1, most // together)
    return [
        (slice(first, min(first + sentences, batch)), slice(head, min(head + together, end)))
        for first in range(0, batch, sentences)
        for end in range(of_lane, heads + 1, of_lane)
        for head in range(end - of_lane, end, together)
    ]


def side_by_side(work: Callable[[Part], Result], parts: Sequence[Part], lanes: int) -> list[Result]:
    """What `work` makes of each part, in their order; for where no gradients are followed.

    The parts must not write where another one reads or writes. What `work` raises in a lane is
    raised here when all parts have ended. There may be fewer threads by now than `n_lanes` found.
    """
    if lanes > 1 and not _is_followed():  # a compiler cannot follow the next question
        lanes = min(lanes, len(parts), torch.get_num_threads())
    else:
        lanes = 1
    if lanes == 1:
        return [work(part) for part in parts]
    inference = torch.is_inference_mode_enabled()  # such modes are each thread's own

    def in_lane(part: Part) -> Result:
        with torch.inference_mode(inference), torch.no_grad():
            return work(part)

    pool = _pool(lanes)
    futures = [pool.submit(in_lane, part) for part in parts]
    try:
        wait(futures)
    except BaseException:  # Ctrl-C: nothing is computed that nobody waits for
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]


def _is_followed() -> bool:
    """Whether somebody follows the operations of this thread alone: a compiler, a counter."""
    if torch.compiler.is_compiling():
        return True
    modes = ("_len_torch_dispatch_stack", "_len_torch_function_stack")  # private: they may go
    counts = (getattr(torch._C, name, int) for name in modes)
    return any(count() for count in counts) or _is_profiled()


def _is_profiled() -> bool:
    ask = getattr(torch.autograd, "_profiler_enabled", None)  # private too
    return bool(ask is not None and ask())


def _pool(lanes: int) -> ThreadPoolExecutor:
    """Threads that compute with an equal share of PyTorch's threads each."""
    threads = torch.get_num_threads()
    key = os.getpid(), lanes, threads  # a forked process has none of its parent's threads
    with _making:
        if key not in _pools:
            _pools[key] = _new_pool(lanes, threads)
        return _pools[key]


def _new_pool(lanes: int, threads: int) -> ThreadPoolExecutor:
    all_begun = threading.Barrier(lanes + 1)

    def begin() -> None:
        torch.get_num_threads()  # the first question takes over the number of all threads
        torch.set_num_threads(threads // lanes)
        all_begun.wait()

    pool = ThreadPoolExecutor(lanes, "lane", begin)
    try:
        for _ in range(lanes):
            pool.submit(int)  # a thread begins with its first work
        all_begun.wait()
    except BaseException:
        all_begun.abort()  # no lane waits for ever, and with it the end of the process
        pool.shutdown(wait=False)
        raise
    finally:
        torch.set_num_threads(threads)  # a lane's number was also that of threads yet to begin
    return pool
