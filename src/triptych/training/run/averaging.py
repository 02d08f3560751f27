"""The mean of the weights of several checkpoints of one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from triptych.errors import UserError
from triptych.training.run.checkpoint import NEEDED, merged_weights, read_checkpoint


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Any]:
    """Return the content of a checkpoint whose weights are the mean of those of checkpoints.

    Vaswani et al. 2017, section 6.1: the mean of the last checkpoints of a run. The mean is
    computed in float32, of the weights that `triptych.load` opens: with optim.ema_decay the moving
    averages, with low-rank adapters the merged weights. Tensors of integers, such as counts of
    batches, and the header are those of the checkpoint of the highest step; in the header
    `averaged` has file and step of each checkpoint, and `metrics` is empty. A run can begin from
    the content (run.start.init_from), but not be resumed.

    checkpoints: files or folders as `read_checkpoint` takes them. Raises UserError where domain,
    settings of the model or vocabulary differ, or names or shapes of weights.
    """
    contents = [read_checkpoint(path) for path in checkpoints]
    headers = [content["triptych"] for content in contents]
    weights = [merged_weights(content) for content in contents]
    shapes = [{name: weight.shape for name, weight in state.items()} for state in weights]
    for path, header, own in zip(checkpoints, headers, shapes, strict=True):
        differing = [key for key in NEEDED if header[key] != headers[0][key]]
        differing += sorted(name for name, _ in own.items() ^ shapes[0].items())
        if differing:
            raise UserError(
                f"the weights of {checkpoints[0]} and {path} cannot be averaged: their "
                f"{differing[0]} differs; expected checkpoints of one model, such as those of a run"
            )
    steps = [int(header["step"]) for header in headers]
    last = steps.index(max(steps))
    averaged = [
        {"checkpoint": path.name, "step": step}
        for path, step in zip(checkpoints, steps, strict=True)
    ]
    means = {
        name: torch.stack([state[name].float() for state in weights]).mean(0)
        if weight.is_floating_point()
        else weight
        for name, weight in weights[last].items()
    }
    return {
        "triptych": {**headers[last], "metrics": {}, "averaged": averaged},
        "state_dict": means,
    }
