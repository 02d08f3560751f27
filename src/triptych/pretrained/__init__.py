"""Trained models shipped with the package, found by name.

A model NAME is three files in this folder: NAME.safetensors (weights in bf16), NAME.json (settings,
vocabulary, versions, metrics and the hash of the weights) and NAME.md (the model card).
`scripts/export_pretrained` writes them and `training.checkpoint` opens the weights.
Imports nothing heavy, so that a wrong name is reported at once.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any, cast

from triptych.errors import UserError

PREFIX = "pretrained:"
"""Begins a name given in place of a checkpoint file; `./pretrained:NAME` is a file of that name."""
FOLDER = Path(__file__).parent
"""Folder of the models unless another is given."""
FORMAT = 1
"""Number of the layout of the three files; others are refused."""

WEIGHTS, METADATA, CARD = ".safetensors", ".json", ".md"
_NEEDED = ("sha256", "tied", "card", "metrics", "parameters", "triptych")
_REMEDY = "install Triptych again, or export the model again with scripts/export_pretrained"


def names(folder: Path | None = None) -> list[str]:
    """Return the names of the models in a folder, by default the package's, sorted."""
    return sorted(path.stem for path in (folder or FOLDER).glob(f"*{METADATA}"))


def find(name: str, folder: Path | None = None) -> Path:
    """Return the weights file of a model, by `NAME` or `pretrained:NAME`.

    Raises UserError for an unknown name, and where one of the model's files is missing.
    """
    name = name.removeprefix(PREFIX)
    known = names(folder)
    weights = (folder or FOLDER) / f"{name}{WEIGHTS}"
    if name in known:
        _require(weights)
        return weights
    if "/" not in name and weights.is_file():
        _require(weights.with_suffix(METADATA))
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {PREFIX}{near[0]}? There are" if near else "there are"
    listed = f"{meant} {', '.join(known)}" if known else "none comes with this installation"
    raise UserError(f"there is no pretrained model {name!r}; {listed}")


def read_metadata(weights: Path) -> dict[str, Any]:
    """Return the content of NAME.json for a weights file.

    "triptych" holds the checkpoint header (see `training.metadata`), "metrics" the scores by split
    and dtype, "card" the texts of the model card, "tied" the tensors that share storage, name by
    name. Raises UserError where the file is missing, damaged or of another format.
    """
    path = weights.with_suffix(METADATA)
    _require(path)
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged, it is no JSON ({error}); {_REMEDY}") from None
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        what = "no format number" if found is None else f"format {found!r}"
        raise UserError(
            f"{path} has {what}; this version of Triptych reads format {FORMAT} of pretrained "
            "models"
        )
    if missing := [key for key in _NEEDED if key not in metadata]:
        raise UserError(f"{path} is damaged, it lacks {', '.join(missing)}; {_REMEDY}")
    return cast(dict[str, Any], metadata)


def read_card(name: str, folder: Path | None = None) -> str:
    """Return the model card, Markdown. Raises UserError as `find` does, and where it is missing."""
    path = find(name, folder).with_suffix(CARD)
    _require(path)
    return path.read_text(encoding="utf-8")


def _require(path: Path) -> None:
    if not path.is_file():
        raise UserError(
            f"the pretrained model {path.stem} is incomplete: {path} is missing; {_REMEDY}"
        )
