"""Cost of a forward pass of a whole model over a batch of its training data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.flop_counter import FlopCounterMode

from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.transformer import Block
from triptych.tools.complexity.layers import Attention
from triptych.tools.complexity.measure import kept_bytes
from triptych.training.engine.module import TrainingModule


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


def flop_counter() -> FlopCounterMode:
    """PyTorch's counter of operations, which misses the attention of CPUs by itself."""

    def attention(q: torch.Size, k: torch.Size, v: torch.Size, *_: Any, **__: Any) -> int:
        return 2 * q[:-1].numel() * k[-2] * (k[-1] + v[-1])

    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return FlopCounterMode(display=False, custom_mapping={on_cpu: attention})


def model_cost(task: TrainingModule, batch: Any) -> ModelCost:
    """Measure the training loss of one batch."""
    counter, targets = flop_counter(), [0]

    def forward() -> Tensor:
        loss, n_targets = task.training_loss(batch)
        targets[0] = int(n_targets)
        return loss

    task.train()
    with recurrent_products(task, counter) as recurrent, counter:
        kept = kept_bytes(task, forward)
    return ModelCost(
        parameters=sum(parameter.numel() for parameter in task.parameters()),
        targets=targets[0],
        flops=counter.get_total_flops() + recurrent.flops,
        kept_bytes=kept,
        length=recurrent.length,
    )


@dataclass
class Noted:
    """What hooks saw in a forward pass."""

    flops: int = 0
    """Operations of recurrent layers that PyTorch's counter does not see. Which ones it sees
    depends on the device, so they are measured and subtracted."""
    length: int = 0
    """Length of the longest sequence."""


@contextmanager
def recurrent_products(model: nn.Module, counter: FlopCounterMode) -> Iterator[Noted]:
    """Note the operations of recurrent layers and the lengths of sequences in the passes inside."""
    noted = Noted()

    def note(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        length = len(x.batch_sizes) if isinstance(x, PackedSequence) else x.shape[1]
        noted.length = max(noted.length, length)
        if isinstance(layer, nn.RNNBase):
            positions = len(x.data) if isinstance(x, PackedSequence) else x.shape[:2].numel()
            matrices = [w for name, w in layer.named_parameters() if name.startswith("weight")]
            noted.flops += 2 * positions * sum(w.numel() for w in matrices)
            noted.flops += counter.get_total_flops()

    def subtract(layer: nn.Module, inputs: Any, output: Any) -> None:
        noted.flops -= counter.get_total_flops()

    layers = [m for m in model.modules() if isinstance(m, (MultiHeadAttention, nn.RNNBase))]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    recurrent = [layer for layer in layers if isinstance(layer, nn.RNNBase)]
    hooks += [layer.register_forward_hook(subtract) for layer in recurrent]
    try:
        yield noted
    finally:
        for hook in hooks:
            hook.remove()


def width_and_heads(model: nn.Module) -> tuple[int, int]:
    """Width and number of heads of the model's layers; one head for a recurrent model.

    Raises ValueError for a model without attention and recurrence.
    """
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            return layer.n_heads * layer.d_head, layer.n_heads
    for layer in model.modules():
        if isinstance(layer, nn.RNNBase):
            return layer.hidden_size, 1
    raise ValueError("the model has no attention and no recurrent layer")


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
