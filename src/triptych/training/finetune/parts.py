"""The part of a model that a run trains: weights by name, and low-rank adapters.

A pattern is a part of a dotted name of weights, such as `decoder`, `decoder.blocks.3` or
`*embedding`; * stands for any text inside one component.

LoRA (Hu et al. 2021, 2106.09685, section 4.1): the output of a layer is W x + (alpha / rank) B A x.
W stays as it is; A [rank, in] starts with Gaussian values and B [out, rank] with zeros. Checkpoints
of a run hold W, A and B; a trained model has W + (alpha / rank) B A. Needs no Lightning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.errors import UserError, nearest

if TYPE_CHECKING:
    from triptych.training.run.settings import FineTuneConfig, RunSettings


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


class InitialWeights(NamedTuple):
    """What a model takes from a checkpoint of another one."""

    weights: dict[str, Tensor]
    """Weights by the names that they have in this model."""
    new: tuple[str, ...] = ()
    """Beginnings of the names of the parts that start anew, such as the head of another task."""


def matches(name: str, pattern: str) -> bool:
    """Return whether consecutive components of a dotted name match those of the pattern."""
    parts, wanted = name.split("."), pattern.split(".")
    starts = range(len(parts) - len(wanted) + 1)
    return any(all(map(fnmatchcase, parts[start:], wanted)) for start in starts)


def select(option: str, patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the names that a pattern of a setting matches, in order; UserError without a match."""
    names, patterns = list(names), list(patterns)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            every = {part for name in names for part in name.split(".")}
            known = sorted(part for part in every if not part.isdigit())
            near = nearest(pattern, known)
            raise UserError(
                f"{option} has {pattern!r}, which is no part of this model"
                f"{f' (did you mean {near}?)' if near else ''}; expected one of "
                f"{', '.join(known)}, or several joined by dots"
            )
    return [name for name in names if any(matches(name, pattern) for pattern in patterns)]


def is_restricted(settings: FineTuneConfig) -> bool:
    """Return whether a run leaves weights of the model as they are."""
    return settings.train_only is not None or settings.lora_rank > 0


def check_parts(config: RunSettings, weights: Mapping[str, Tensor]) -> tuple[list[str], list[str]]:
    """Return the names of the weights that train_only selects, and of the layers with adapters.

    weights: of a model without adapters, by name. Raises UserError where a pattern matches none of
    them, and for Muon without a matrix to train.
    """
    settings, optimizer = config.run.finetune, config.optim.optimizer
    chosen = select("run.finetune.train_only", settings.train_only or (), weights)
    linear = linear_layers(weights)
    matrices = {f"{layer}.weight" for layer in linear}
    if optimizer.needs_blocks and is_restricted(settings) and not matrices & {*chosen}:
        raise UserError(
            f"optim.optimizer is {type(optimizer).__name__}, which trains matrices of the blocks, "
            "and run.finetune.train_only selects none (adapters are none either); set "
            "optim.optimizer to AdamW"
        )
    if not settings.lora_rank:
        return chosen, []
    if settings.lora_layers is not None:
        linear = select("run.finetune.lora_layers", settings.lora_layers, linear)
    return chosen, linear


def restrict_training(model: nn.Module, config: RunSettings) -> None:
    """Add the adapters of the run to the model and freeze what the run does not train, in place.

    A matrix that several parts share is trained if one of them is.
    """
    settings = config.run.finetune
    if not is_restricted(settings):
        return
    chosen, layers = check_parts(config, model.state_dict())
    add_adapters(model, layers, rank=settings.lora_rank, alpha=settings.lora_alpha)
    model.requires_grad_(False)
    for name, weight in model.named_parameters(remove_duplicate=False):
        if name in chosen or is_adapter(name):
            weight.requires_grad_(True)
