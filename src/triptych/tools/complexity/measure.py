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
    _storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    # By id, which is unique while the storage is held; a fake tensor has no address to go by.

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what the forward pass inside keeps."""
        with torch.autograd.graph.saved_tensors_hooks(self.note, lambda tensor: tensor):
            yield

    def note(self, tensor: Tensor) -> Tensor:
        """Count the storage of a tensor, once for all tensors that share it; return the tensor."""
        storage = tensor.untyped_storage()
        self._storages[id(storage)] = storage
        return tensor

    @property
    def n_bytes(self) -> int:
        """Bytes of what was noted."""
        own = {id(parameter.untyped_storage()) for parameter in self.module.parameters()}
        return sum(storage.nbytes() for key, storage in self._storages.items() if key not in own)


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
