"""`triptych evaluate DOMAIN`: score a checkpoint on a held-out split, on screen and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych import __version__
from triptych.commands.options import (
    Weights,
    check_checkpoint,
    check_writable,
    counted,
    open_model,
    progress_on_stderr,
    read_options,
    write_json,
)
from triptych.errors import UserError


@dataclass(frozen=True)
class Options:
    """Options of `triptych evaluate`."""

    checkpoint: str
    """Checkpoint file (.ckpt); it needs no settings file beside it."""
    split: str = "test"
    """Part of the data to score: validation, test, or another name that the source knows."""
    data: str | None = None
    """Folder to read the data from, in place of the one the model was trained from."""
    batch_size: int | None = None
    """Items scored at a time, without influence on the score; null for the model's own number."""
    limit: int | None = None
    """Score only the first so many items, for a quick look; null for all."""
    json: str | None = None
    """File to write the score to, whole or not at all; an older one is replaced."""
    weights: Weights = "fp32"
    """Weights to score with: bf16 and int8 are scored beside fp32, and the change is told."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers below 1."""
        for name in ("batch_size", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")


def run(domain: str, arguments: Sequence[str]) -> int:
    """Score a checkpoint and print the metrics; raises UserError for what a user got wrong."""
    options, _ = read_options(
        Options,
        arguments,
        prog=f"triptych evaluate {domain}",
        description=f"Score a checkpoint of the domain {domain} on a split of its data.",
    )
    path = check_checkpoint(options.checkpoint)
    out = check_writable(options.json, "json") if options.json is not None else None
    if options.data is not None:
        check_data(options.data)

    model, facts = open_model(path, domain=domain, device=options.device)
    model = model.with_weights(options.weights)  # weights that cannot be are told before the work

    def scored(judge: Any, what: str) -> tuple[Any, dict[str, float]]:
        evaluation = judge.evaluate(
            options.split,
            data=options.data,
            batch_size=options.batch_size,
            limit=options.limit,
            progress=progress_on_stderr(what),
        )
        return evaluation, {name: float(value) for name, value in evaluation.metrics.items()}

    change = {}
    if options.weights == "fp32":
        evaluation, metrics = scored(model, "scored batches")
    else:
        _, full = scored(model.with_weights("fp32"), "scored batches (fp32)")
        evaluation, metrics = scored(model, f"scored batches ({options.weights})")
        change = {
            "metrics_fp32": full,
            "change": {name: value - full[name] for name, value in metrics.items()},
        }
    result = {
        "domain": evaluation.domain,
        "split": evaluation.split,
        "weights": options.weights,
        "metrics": metrics,
        **change,
        "count": evaluation.count,
        "details": evaluation.details,
        "checkpoint": {"file": str(path), "step": facts.get("step")},
        "versions": {
            "triptych": __version__,
            "trained_with": facts.get("versions", {}),
        },
        "limit": options.limit,
    }
    if out is not None:
        write_json(out, result)
    print_metrics(result)
    return 0


def check_data(path: str) -> None:
    """Raise UserError where --data names nothing that is there."""
    if not Path(path).exists():
        raise UserError(f"--data {path} does not exist; expected the folder of the data")


def print_metrics(result: dict[str, Any]) -> None:
    """Print one metric a line, aligned, with the split and the number of items above them.

    For reduced weights each has its change from float32 beside it.
    """
    first = f", the first {result['limit']} of it" if result["limit"] else ""
    items = counted(result["count"], "item", "items")
    weights = f" with {result['weights']} weights" if "change" in result else ""
    print(f"{result['domain']}, split {result['split']}{first}: {items} scored{weights}")
    width = max(map(len, result["metrics"]), default=0)
    for name, value in result["metrics"].items():
        change = ""
        if "change" in result:
            full = result["metrics_fp32"][name]
            change = f"  ({result['change'][name]:+.4f}, fp32 {full:.4f})"
        print(f"  {name:<{width}}  {value:.4f}{change}")
    sys.stdout.flush()
