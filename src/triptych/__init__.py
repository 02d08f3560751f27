"""Triptych: one Transformer core and three arts on it, translation, images and music."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__version__ = "0.1.0"

__all__ = ["__version__", "load"]


def load(checkpoint: str | Path, *, device: str = "auto") -> Any:
    """Open a checkpoint as the model of its domain, ready to translate, sample and evaluate.

    checkpoint: a `.ckpt` file that `triptych train` wrote; it needs nothing beside it.
    device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1".
    Raises UserError where the file is missing, truncated or not one of Triptych's.
    """
    from importlib import import_module

    from triptych.training.checkpoint import read_checkpoint

    content = read_checkpoint(checkpoint)
    domain = content["triptych"]["domain"]
    return import_module(f"triptych.domains.{domain}.inference").load(content, device=device)
