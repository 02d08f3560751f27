"""Triptych: a toolkit for generative Transformers of text, images and music."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from triptych.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from triptych.domains.base import TrainedModel

__all__ = ["__version__", "load"]


def load(
    checkpoint: str | Path, *, device: str = "auto", domain: str | None = None
) -> TrainedModel:
    """Open a checkpoint and return its trained model, ready to evaluate, sample or translate.

    checkpoint: a `.ckpt` file written by `triptych train`, a folder written by `triptych export`
    with --format safetensors or hf, or "pretrained:NAME" for a model that is shipped with the
    package (`triptych pretrained` lists them).
    device: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1".
    domain: expected domain; needed only for one outside Triptych whose module `domain` is not
    imported yet, as the dotted path of its package, because a checkpoint by itself never causes an
    import of another package.
    Raises UserError for a missing, truncated or foreign file.
    """
    from triptych import domains
    from triptych.errors import UserError
    from triptych.training.run.checkpoint import check_domain, read_checkpoint

    content = read_checkpoint(checkpoint)
    name = content["triptych"]["domain"]
    if domain is not None:
        check_domain(content["triptych"], domain, checkpoint)
    elif name not in domains.names() and f"{name}.domain" not in sys.modules:
        raise UserError(
            f"{checkpoint} is of the domain {name!r}, which is not part of Triptych; if you trust "
            f"the package {name}, name it: triptych.load(..., domain={name!r}), or "
            f"--plugin {name}.domain"
        )
    model = domains.find_domain(name).restore(content, device)
    model.name = str(checkpoint)
    return model
