"""What a model costs, measured on one batch: operations and kept tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def recurrent_flops(layer: nn.RNNBase, n_positions: int) -> int:
    """Return the operations of the products with all matrices of a layer in the forward pass."""
    matrices = [w for name, w in layer.named_parameters() if name.startswith("weight")]
    return 2 * n_positions * sum(matrix.numel() for matrix in matrices)


class FlopCounter(FlopCounterMode):
    """PyTorch's counter with the attention of CPUs and recurrent layers, which it misses.

    Attention counts as it is computed, pairs that its mask hides included where they are computed.
    """

    def __init__(self, model: nn.Module) -> None:
        # PyTorch's counter knows operations by these names alone; the public function has several.
        on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        super().__init__(display=False, custom_mapping={on_cpu: sdpa_flops})
        self._layers = [part for part in model.modules() if isinstance(part, nn.RNNBase)]
        self._recurrent = 0

    def __enter__(self) -> FlopCounter:
        self._hooks = [layer.register_forward_pre_hook(self._begin) for layer in self._layers]
        self._hooks += [layer.register_forward_hook(self._end) for layer in self._layers]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    @property
    def total(self) -> int:
        """Operations of the passes inside."""
        return int(self.get_total_flops()) + self._recurrent

    # Which operations of a recurrent layer PyTorch sees depends on the device, so they are taken
    # off again.

    def _begin(self, layer: nn.RNNBase, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        n_positions = len(x.data) if isinstance(x, PackedSequence) else x.shape[:2].numel()
        self._recurrent += recurrent_flops(layer, n_positions) + int(self.get_total_flops())

    def _end(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        self._recurrent -= int(self.get_total_flops())


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
        with FlopCounter(task) as counter:
            kept = kept_bytes(task, forward)
    finally:
        for hook in hooks:
            hook.remove()
    parameters = sum(parameter.numel() for parameter in task.parameters())
    return ModelCost(parameters, targets[0], counter.total, kept, max(lengths))
