"""Trained models shipped with the package, found by name.

A model NAME is three files in this folder: NAME.safetensors (weights in bf16), NAME.json (settings,
vocabulary, versions, metrics and the hash of the weights) and NAME.md (the model card).
`scripts/export_pretrained` writes them and `training.checkpoint` opens the weights.
Imports nothing heavy, so that a wrong name is reported at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from triptych.errors import UserError, nearest

PREFIX = "pretrained:"
"""Begins a name given in place of a checkpoint file; `./pretrained:NAME` is a file of that name."""
FOLDER = Path(__file__).parent
"""Folder of the models."""
FORMAT = 1
"""Number of the layout of the three files; others are refused."""

WEIGHTS, METADATA, CARD = ".safetensors", ".json", ".md"


def names() -> list[str]:
    """Return the names of the models, sorted."""
    return sorted(path.stem for path in FOLDER.glob(f"*{METADATA}"))


def find(name: str) -> Path:
    """Return the weights file of a model, by `NAME` or `pretrained:NAME`; UserError if unknown."""
    name = name.removeprefix(PREFIX)
    known = names()
    if name in known:
        return FOLDER / f"{name}{WEIGHTS}"
    near = nearest(name, known)
    meant = f"did you mean {PREFIX}{near}? There are" if near else "there are"
    listed = f"{meant} {', '.join(known)}" if known else "none comes with this installation"
    raise UserError(f"there is no pretrained model {name!r}; {listed}")


def read_metadata(weights: Path) -> dict[str, Any]:
    """Return the content of NAME.json for a weights file.

    "triptych" holds the header (see `training.checkpoint`), "metrics" the scores by split and
    dtype, "card" the texts of the model card, "tied" the tensors that share storage, name by name.
    Raises UserError where the file is missing, damaged or of another format.
    """
    path = weights.with_suffix(METADATA)
    try:
        metadata: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged ({error}); install Triptych again") from None
    if metadata.get("format") != FORMAT:
        raise UserError(
            f"{path} has format {metadata.get('format')}; this version of Triptych reads format "
            f"{FORMAT} of pretrained models"
        )
    return metadata


def read_card(name: str) -> str:
    """Return the model card, Markdown. Raises UserError as `find` does."""
    return find(name).with_suffix(CARD).read_text(encoding="utf-8")
