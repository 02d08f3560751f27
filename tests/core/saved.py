"""How much a forward pass saves for the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def saved_bytes(forward: Callable[[], Tensor]) -> int:
    """Bytes of all storages that are saved, each counted once; inputs of checkpoints apart."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = forward()  # held, so that no storage is freed and its place counted as another's
    assert y.requires_grad
    return sum(seen.values())
