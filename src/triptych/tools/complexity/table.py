"""The costs of a model, and the table of costs of layers, as text."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from triptych.files.progress import aligned
from triptych.tools.complexity import CostOptions
from triptych.tools.complexity.layers import UNREACHABLE, LayerKind, layer_kinds
from triptych.tools.complexity.measure import (
    ModelCost,
    kept_bytes,
    model_cost,
    own_layers,
    width_and_heads,
)
from triptych.training.engine.module import TrainingModule
from triptych.types import Progress

HEADINGS = ("layer", "order", "length", "parameters", "FLOPs", "sequential", "path", "kept MiB")


class Row(NamedTuple):
    """Cost of one layer over one sequence."""

    layer: str
    order: str
    """Operations by length n, width d, window r and kernel k (table 1); empty where not in it."""
    length: int
    parameters: int
    flops: int
    """Of the forward pass."""
    sequential_operations: int
    longest_path: int | None
    """None where the last position never depends on the first."""
    kept_bytes: int
    """Activations kept for the backward pass, float32."""


def costs(task: TrainingModule, batch: Any, options: CostOptions, progress: Progress) -> str:
    """Return the text to print. progress: as in `table`."""
    cost = model_cost(task, batch)
    width, n_heads = width_and_heads(task)
    length = options.length or cost.length
    kinds = layer_kinds(width, n_heads, window=options.window, kernel=options.kernel, length=length)
    own = table(own_layers(task), (cost.length,))
    parts = [
        model_text(cost),
        f"one layer of width {width}, {n_heads} heads, one sequence:",
        as_text(table(kinds, (length,), progress)),
    ]
    if own:
        parts += ["one layer of each attention of the model:", as_text(own)]
    return "\n\n".join(parts)


def table(
    kinds: Mapping[str, LayerKind], lengths: Sequence[int], progress: Progress | None = None
) -> list[Row]:
    """The costs of each kind at each length, on random inputs of batch size 1, on the CPU.

    progress: called with (rows made, rows).
    """
    rows = []
    for name, kind in kinds.items():
        for length in lengths:
            x = torch.randn(1, length, kind.width, requires_grad=True)
            path = kind.longest_path(length)
            rows.append(
                Row(
                    name,
                    kind.order,
                    length,
                    sum(parameter.numel() for parameter in kind.layer.parameters()),
                    kind.flops(length),
                    length if kind.one_by_one else 1,
                    None if path == UNREACHABLE else path,
                    kept_bytes(kind.layer, partial(kind.run, x)),
                )
            )
            if progress is not None:
                progress(len(rows), len(kinds) * len(lengths))
    return rows


def model_text(cost: ModelCost) -> str:
    """Return the costs of the whole model on one batch as lines of text."""
    return "\n".join(
        (
            f"{cost.parameters:,} parameters",
            f"a batch of {cost.targets:,} predicted values, sequences of at most {cost.length:,}:",
            f"  {cost.flops / 1e9:,.2f} GFLOP in the forward pass, three times as many in training",
            f"  {cost.kept_bytes / 2**20:,.1f} MiB of activations kept for the backward pass",
        )
    )


def as_text(rows: Sequence[Row]) -> str:
    """Return the table of layers as lines of aligned columns."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    for row in rows:
        cells = (
            row.layer,
            f"O({row.order})" if row.order else "",
            f"{row.length:,}",
            f"{row.parameters:,}",
            f"{row.flops:,}",
            f"{row.sequential_operations:,}",
            "none" if row.longest_path is None else f"{row.longest_path:,}",
            f"{row.kept_bytes / 2**20:.2f}",
        )
        lines.append(cells)
    return "\n".join(aligned(lines, right_from=2))
