"""How the settings and the weights of a checkpoint differ from those of a task, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

ONLY_COMPUTED = ("model.transformer.activation_checkpointing",)
"""Settings of the model that change how it is computed, not what it is."""


def changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names whose values differ, of two dicts as `flat` makes them, sorted."""
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


def trained_otherwise(
    path: Path, names: list[str], before: dict[str, Any], now: dict[str, Any]
) -> str:
    """Both values of these settings, in words."""

    def listed(values: dict[str, Any]) -> str:
        return ", ".join(f"{n} {values[n]}" if n in values else f"no {n}" for n in names)

    return f"{path} was trained with {listed(before)}, but the settings now say {listed(now)}"


def misfit(kept: dict[str, Tensor], built: dict[str, Tensor]) -> str | None:
    """The first weight that is not on both sides in the same shape, in words; None for a fit."""
    for name in sorted({*kept, *built}):
        there, here = (list(w[name].shape) if name in w else "missing" for w in (kept, built))
        if there != here:
            return f"the weight {name} is {there} in the checkpoint and {here} in this model"
    return None


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Name every setting by its path: {"model": {"d_model": 64}} gives {"model.d_model": 64}."""
    if isinstance(value, dict) and value:
        found: dict[str, Any] = {}
        for key, item in value.items():
            found |= flat(item, f"{prefix}{key}.")
        return found
    return {prefix.rstrip("."): value}
