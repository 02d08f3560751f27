"""A trained task whose model is ready to decode, in full or in reduced precision."""

from __future__ import annotations

import copy
import warnings
from typing import TypeVar, get_args

import torch
from torch import nn

from triptych.decoding.matrices import Int8, Matrix
from triptych.decoding.quantize import Weights, for_decoding
from triptych.errors import UserError
from triptych.training.module import Task

AnyTask = TypeVar("AnyTask", bound=Task)

SCORED_ROWS = 256
"""Rows of a product in scoring, where many positions are read at once; about is enough."""


def check_weights(weights: str, device: torch.device) -> None:
    """Raise UserError for weights that do not exist, or not on this device."""
    if weights not in get_args(Weights):
        raise UserError(f"weights are {', '.join(get_args(Weights))}, got {weights}")
    if weights == "int8" and device.type != "cpu":
        raise UserError(f"int8 weights are for a CPU; this model is on {device}")


def ready(model: nn.Module, weights: Weights, *, rows: int, compiled: bool = False) -> nn.Module:
    """The model made ready by `for_decoding`; warns where int8 did not serve all its matrices.

    Raises UserError for weights that cannot be.
    """
    try:
        fast = for_decoding(model, weights, rows=rows, compiled=compiled)
    except ValueError as error:
        raise UserError(str(error)) from error
    if weights == "int8":
        matrices = [part for part in fast.modules() if isinstance(part, Matrix)]
        left = [matrix for matrix in matrices if not isinstance(matrix, Int8)]
        if left:
            warnings.warn(
                f"{len(left)} of {len(matrices)} matrices stay in float32, for int8 did not serve "
                f"here: {left[0].reason}",
                stacklevel=1,  # one place, so that it is told once
            )
    return fast


def with_weights(
    task: AnyTask, weights: Weights, *, rows: int = SCORED_ROWS, compiled: bool = False
) -> AnyTask:
    """The same task around a model that is `ready`; the task itself stays as it is."""
    return around(task, ready(task.model, weights, rows=rows, compiled=compiled))


def around(task: AnyTask, model: nn.Module) -> AnyTask:
    """The same task with another model inside; the task itself stays as it is."""
    other = copy.copy(task)
    # A shallow copy shares the table of parts, where an assignment would reach the original too.
    parts: dict[str, nn.Module | None] = {**task._modules, "model": model}
    other._modules = parts
    return other
