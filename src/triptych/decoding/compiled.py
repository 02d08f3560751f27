"""The steps of a model through torch.compile, over states that are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.models.base import AutoregressiveModel
from triptych.core.state import DecodingState, map_tensors, tensors_of


class CompiledSteps:
    """The step of a model through torch.compile, for several calls of `generate`.

    Compiling takes tens of seconds. On a GPU the step becomes a CUDA graph, which needs its tensors
    at fixed addresses: the states are kept, so that batches of one shape share one graph.
    """

    def __init__(self, model: AutoregressiveModel) -> None:
        self.model = model
        self._steps: dict[
            tuple[torch.Size, ...], tuple[DecodingState[Any], Callable[..., Tensor]]
        ] = {}

    def load(self, state: DecodingState[Any]) -> tuple[DecodingState[Any], Callable[..., Tensor]]:
        """The kept state of this shape with the contents of a new one, and the step over it."""
        tensors = tensors_of(state)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._steps:
            mode = "reduce-overhead" if tensors[0].device.type == "cuda" else None
            step = torch.compile(StaticStep(self.model, state), dynamic=False, mode=mode)
            self._steps[shapes] = state, step
        kept, step = self._steps[shapes]
        for old, new in zip(tensors_of(kept), tensors, strict=True):
            old.copy_(new)
        return kept, step


class StaticStep(nn.Module):
    """The step of a model with the tensors of its state as buffers, for torch.compile.

    CUDA graphs are skipped where a step writes into a tensor that is no buffer of the module.
    """

    def __init__(self, model: AutoregressiveModel, state: DecodingState[Any]) -> None:
        super().__init__()
        self.model = model
        self.count = 0

        def name_of(tensor: Tensor) -> str:
            self.count += 1
            name = f"state_{self.count}"
            self.register_buffer(name, tensor, persistent=False)
            return name

        self.names = map_tensors(state, name_of)
        """The state with the name of a buffer in place of each tensor."""

    def forward(self, values: Tensor, positions: Tensor) -> Tensor:
        """As `AutoregressiveModel.step`, without contexts."""
        state = map_tensors(self.names, lambda name: getattr(self, name))
        return self.model.step(values, positions, state)
