"""Queue of a model: a thread computes what waits, as many requests together as fit."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

from triptych.types import Progress


@dataclass(eq=False)
class Job:
    """Request that waits for a model."""

    content: Any
    """What the model computes a result of."""
    size: int
    """Number of lines or samples."""
    result: Future[Any] = field(default_factory=Future)
    """Cancelled where nobody waits for it any more."""
    since: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class Worker:
    """Thread that computes the jobs of a model, in the order in which they came."""

    compute: Callable[[Sequence[Any], Progress], Sequence[Any]]
    """Takes the contents of jobs and a progress; returns their results."""
    observe: Callable[[int], None]
    """Called with the size of each batch."""
    max_batch: int
    """Largest sum of the sizes of jobs that are computed together."""
    max_wait: float
    """Seconds that a job waits for others."""
    max_queue: int
    """Most jobs that wait."""
    waiting: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = Condition()
        Thread(target=self._run, daemon=True).start()

    def length(self) -> int:
        """Return the number of jobs whose result somebody waits for, those that run apart."""
        return sum(not job.result.cancelled() for job in self.waiting)

    def submit(self, job: Job) -> bool:
        """Append a job, whose result will be set; False where the queue is full."""
        with self._changed:
            if free := self.length() < self.max_queue:
                self.waiting.append(job)
                self._changed.notify()
        return free

    def _run(self) -> None:
        while True:
            if jobs := [job for job in self._batch() if not job.result.cancelled()]:
                self.observe(_size(jobs))
                self._answer(jobs)

    def _batch(self) -> list[Job]:
        with self._changed:
            self._changed.wait_for(lambda: self.waiting)
            left = self.waiting[0].since + self.max_wait - time.monotonic()
            self._changed.wait_for(lambda: _size(self.waiting) >= self.max_batch, left)
            jobs = [self.waiting.pop(0)]
            while self.waiting and _size([*jobs, self.waiting[0]]) <= self.max_batch:
                jobs.append(self.waiting.pop(0))
        return jobs

    def _answer(self, jobs: list[Job]) -> None:
        def progress(done: int, total: int) -> None:
            if all(job.result.cancelled() for job in jobs):
                raise CancelledError("nobody waits for the result any more")

        try:
            results = self.compute([job.content for job in jobs], progress)
        except Exception as error:
            for job in jobs if len(jobs) > 1 else []:  # one's fault is not that of the others
                self._answer([job])
            if len(jobs) == 1:
                with suppress(InvalidStateError):
                    jobs[0].result.set_exception(error)
            return
        for job, result in zip(jobs, results, strict=True):
            with suppress(InvalidStateError):
                job.result.set_result(result)


def _size(jobs: list[Job]) -> int:
    return sum(job.size for job in jobs)
