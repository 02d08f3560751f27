"""A trained task around a model in reduced precision."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from triptych.decoding import quantize as precision
from triptych.decoding.quantize import Dtype, quantize
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.training.module import TrainingModule

AnyTask = TypeVar("AnyTask", bound="TrainingModule")


def check_dtype(dtype: str, device: torch.device, *, compile: bool = False) -> None:
    """Raise UserError for an unknown dtype, and for int8 on a GPU or with compile."""
    try:
        precision.check_dtype(dtype, device)
    except ValueError as error:
        raise UserError(str(error)) from error
    if dtype == "int8" and compile:
        raise UserError("an int8 model cannot be compiled; use dtype fp32 or bf16")


def with_dtype(task: AnyTask, dtype: Dtype) -> AnyTask:
    """The same task around a model in this precision; the task itself stays as it is."""
    return around(task, quantize(task.model, dtype))


def around(task: AnyTask, model: nn.Module) -> AnyTask:
    """The same task with another model inside; the task itself stays as it is."""
    other = copy.copy(task)
    # A shallow copy shares the table of parts, where an assignment would reach the original too.
    parts: dict[str, nn.Module | None] = {**task._modules, "model": model}
    other._modules = parts
    return other


def load_weights(model: nn.Module, state_dict: Mapping[str, Tensor]) -> None:
    """Load a checkpoint's weights into the core model: names without their prefix "model."."""
    model.load_state_dict({name.removeprefix("model."): w for name, w in state_dict.items()})
