"""Costs that are measured, of a layer and of a whole model: operations, kept tensors, time."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.transformer import Block
from triptych.errors import UserError
from triptych.tools.complexity.layers import Attention
from triptych.training.engine.flops import FlopCounter
from triptych.training.engine.module import TrainingModule


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
    """Median time of a call on the CPU, after one that is not counted."""
    return statistics.median(timeit.repeat(forward, number=1, repeat=repeats + 1)[1:])


@dataclass(frozen=True)
class ModelCost:
    """Cost of a model on one batch."""

    parameters: int
    targets: int
    """Predicted values of the batch."""
    flops: int
    """Operations of the forward pass, those of matrix products, convolutions and recurrent layers
    alone; twice as many come with the backward pass. Attention counts as it is computed, pairs that
    its mask hides included where they are computed."""
    kept_bytes: int
    """Activations that the forward pass keeps for the backward pass, in float32."""
    length: int
    """Positions of the longest sequence that a layer reads."""


def model_cost(task: TrainingModule, batch: Any) -> ModelCost:
    """Measure the training loss of one batch."""
    targets, lengths = [0], [0]

    def forward() -> Tensor:
        loss, n_targets = task.training_loss(batch)
        targets[0] = int(n_targets)
        return loss

    def note(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        lengths.append(len(x.batch_sizes) if isinstance(x, PackedSequence) else x.shape[1])

    layers = [part for part in task.modules() if isinstance(part, (MultiHeadAttention, nn.RNNBase))]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    task.train()
    try:
        with FlopCounter(task) as counter:
            kept = kept_bytes(task, forward)
    finally:
        for hook in hooks:
            hook.remove()
    parameters = sum(parameter.numel() for parameter in task.parameters())
    return ModelCost(parameters, targets[0], counter.total, kept, max(lengths))


def width_and_heads(model: nn.Module) -> tuple[int, int]:
    """Width and number of heads of the model's layers; one head for a recurrent model.

    Raises UserError for a model without attention and recurrence.
    """
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            return layer.n_heads * layer.d_head, layer.n_heads
    for layer in model.modules():
        if isinstance(layer, nn.RNNBase):
            return layer.hidden_size, 1
    raise UserError(
        "the model has no attention and no recurrent layer, whose costs could be compared"
    )


def own_layers(model: nn.Module) -> dict[str, Attention]:
    """One self-attention layer of each variant of the model, by the names of the variants."""
    layers: dict[str, Attention] = {}
    for block in model.modules():
        if isinstance(block, Block):
            layer = block.attention
            direction = "" if layer.mask_pattern.causal else ", both directions"
            name = f"{type(block.variant).__name__}{direction}"
            layers.setdefault(name, Attention(layer.n_heads * layer.d_head, layer))
    return layers
