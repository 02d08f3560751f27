"""What a model costs, measured on one batch: operations and kept tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from triptych.core.attention.multihead import MultiHeadAttention
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


def sdpa_flops(q: torch.Size, k: torch.Size, v: torch.Size, *_: Any, **__: Any) -> int:
    """Return the operations of attention [..., Q, E], [..., K, E], [..., K, V] over all pairs.

    Products of queries with keys, and of weights with values.
    """
    return 2 * q[:-1].numel() * k[-2] * (k[-1] + v[-1])


def recurrent_flops(x: torch.Size, weights: Sequence[torch.Size], *_: Any, **__: Any) -> int:
    """Return the operations of the products of x [..., D] with all matrices of recurrent layers.

    weights: of all layers, biases among them.
    """
    return 2 * x[:-1].numel() * sum(weight.numel() for weight in weights if len(weight) == 2)


def flop_counter() -> FlopCounterMode:
    """Return PyTorch's counter with the attention of CPUs and recurrent layers, which it misses.

    Attention counts as it is computed, pairs that its mask hides included where they are computed.
    """
    # PyTorch's counter knows operations by these names alone; the public functions have several.
    aten = torch.ops.aten
    missed = {
        aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flops,
        aten.mkldnn_rnn_layer: lambda x, *weights, **_: recurrent_flops(x, weights[:2]),
        aten._cudnn_rnn: recurrent_flops,
    }
    return FlopCounterMode(display=False, custom_mapping=missed)


def kept_bytes(module: nn.Module, forward: Callable[[], object]) -> int:
    """Bytes that the forward pass keeps for the backward pass of the module's parameters."""
    kept = KeptTensors(module)
    with torch.enable_grad(), kept.noted():
        result = forward()
    del result
    return kept.n_bytes


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

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.parameters:,} parameters",
                f"a batch of {self.targets:,} predicted values, sequences of at most "
                f"{self.length:,}:",
                f"  {self.flops / 1e9:,.2f} GFLOP in the forward pass, three times as many in "
                "training",
                f"  {self.kept_bytes / 2**20:,.1f} MiB of activations kept for the backward pass",
            )
        )


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
        with flop_counter() as counter:
            kept = kept_bytes(task, forward)
    finally:
        for hook in hooks:
            hook.remove()
    parameters = sum(parameter.numel() for parameter in task.parameters())
    return ModelCost(parameters, targets[0], counter.get_total_flops(), kept, max(lengths))
