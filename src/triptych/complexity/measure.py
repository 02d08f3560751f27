"""Memory and time of a forward pass that are measured, not computed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass
class KeptTensors:
    """Storages that autograd keeps for the backward pass, those of parameters excluded."""

    module: nn.Module
    _sizes: dict[int, int] = field(default_factory=dict)
    _alive: list[Tensor] = field(default_factory=list)  # a freed storage's address would come again

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what the forward pass inside keeps."""
        with torch.autograd.graph.saved_tensors_hooks(self._note, lambda tensor: tensor):
            yield

    def _note(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._sizes[storage.data_ptr()] = storage.nbytes()
        self._alive.append(tensor)
        return tensor

    @property
    def n_bytes(self) -> int:
        """Bytes of what was noted."""
        own = {parameter.untyped_storage().data_ptr() for parameter in self.module.parameters()}
        return sum(size for key, size in self._sizes.items() if key not in own)


def kept_bytes(module: nn.Module, forward: Callable[[], object]) -> int:
    """Bytes that the forward pass keeps for the backward pass of the module's parameters."""
    kept = KeptTensors(module)
    with torch.enable_grad(), kept.noted():
        result = forward()
    del result
    return kept.n_bytes


def seconds(forward: Callable[[], object], *, repeats: int) -> float:
    """Median time of a call, after one that is not counted; waits for a GPU."""
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        forward()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])
