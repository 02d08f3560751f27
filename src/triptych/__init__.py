"""Triptych: one Transformer core and three arts on it, translation, images and music."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__version__ = "0.1.0"

__all__ = ["__version__", "load"]


def load(checkpoint: str | Path, *, device: str = "auto") -> Any:
    """Open a checkpoint as the model of its domain, ready to translate, sample and evaluate.

    checkpoint: a `.ckpt` file that `triptych train` wrote, which needs nothing beside it, or
    "pretrained:NAME" for a model that comes with the package (`triptych pretrained` lists them).
    device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1".
    Raises UserError where the file is missing, truncated or not one of Triptych's.
    """
    from importlib import import_module

    from triptych import pretrained
    from triptych.training.checkpoint import read_checkpoint

    if isinstance(checkpoint, str) and checkpoint.startswith(pretrained.PREFIX):
        checkpoint = pretrained.find(checkpoint)
    content = read_checkpoint(checkpoint)
    domain = content["triptych"]["domain"]
    return import_module(f"triptych.domains.{domain}.inference").load(content, device=device)
