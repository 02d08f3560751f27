"""Low-rank adapters (LoRA) of linear layers: Hu et al. 2021, arXiv 2106.09685.

The output of a layer is W x + (alpha / rank) B A x (section 4.1). W stays as it is; A [rank, in]
starts with Gaussian values and B [out, rank] with zeros, so that the model starts unchanged.
Checkpoints of a run hold W, A and B, from which the run can be resumed. A trained model has the
merged weights W + (alpha / rank) B A, and no adapters. Needs no Lightning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ADAPTERS = ("lora_a", "lora_b")
"""Last parts of the names of the matrices A and B."""


class LoRALinear(nn.Linear):
    """Linear layer with a low-rank adapter; it shares `weight` and `bias` with the given layer."""

    def __init__(self, linear: nn.Linear, *, rank: int, alpha: float) -> None:
        n_in, n_out = linear.in_features, linear.out_features
        super().__init__(n_in, n_out, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.alpha = alpha
        self.lora_a = nn.Parameter(torch.randn(rank, n_in) * n_in**-0.5)
        self.lora_b = nn.Parameter(torch.zeros(n_out, rank))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:  # exactly what the trained model computes
            weight = merged_weight(self.weight, self.lora_a, self.lora_b, self.alpha)
            return F.linear(x, weight, self.bias)  # [..., out]
        low = F.linear(F.linear(x, self.lora_a), self.lora_b)  # [..., out]
        return F.linear(x, self.weight, self.bias) + low * (self.alpha / len(self.lora_a))


def merged_weight(weight: Tensor, a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """W + (alpha / rank) B A: [out, in]."""
    return weight + (b @ a) * (alpha / len(a))


def linear_layers(weights: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the linear layers inside blocks, which can have adapters.

    Embeddings and heads are no such layers: they may share their matrix.
    """
    matrices = [
        name
        for name, weight in weights.items()
        if ".blocks." in f".{name}" and name.endswith(".weight") and weight.ndim == 2
    ]
    return [name.removesuffix(".weight") for name in matrices]


def add_adapters(model: nn.Module, layers: Iterable[str], *, rank: int, alpha: float) -> None:
    """Give linear layers of the model, by name, adapters, in place."""
    for name in layers:
        parent, _, own = name.rpartition(".")
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        setattr(model.get_submodule(parent), own, LoRALinear(linear, rank=rank, alpha=alpha))


def is_adapter(name: str) -> bool:
    """Return whether a weight of this name belongs to an adapter."""
    return name.rpartition(".")[2] in ADAPTERS


def merge_adapters(weights: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """Return the weights with their adapters merged; equal to `weights` where there are none."""
    merged = dict(weights)
    for name in weights:
        if name.endswith(".lora_a"):
            layer = name.removesuffix("lora_a")
            a, b = merged.pop(name), merged.pop(f"{layer}lora_b")
            merged[f"{layer}weight"] = merged_weight(merged[f"{layer}weight"], a, b, alpha)
    return merged
