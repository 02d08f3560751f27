"""Trained models that come with the package, and where to find one by its name.

A model NAME is three files in this folder: NAME.safetensors (the weights in bf16), NAME.json (its
settings, vocabulary, versions, metrics, and the hash of the weights) and NAME.md (the card for
people). `scripts/export_pretrained` writes them and `training.checkpoint` opens the weights.
Nothing heavy is imported here, so that a wrong name is answered at once.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from triptych.errors import UserError

PREFIX = "pretrained:"
"""What a name begins with where a checkpoint is asked for; ./ before it means a file so called."""
FOLDER = Path(__file__).parent
"""Where names are looked up unless a folder is given."""
FORMAT = 1
"""Number of the layout of the three files; a reader refuses any other."""

WEIGHTS, FACTS, CARD = ".safetensors", ".json", ".md"
_NEEDED = ("sha256", "tied", "card", "metrics", "parameters", "triptych")


def names(folder: Path | None = None) -> list[str]:
    """The names there are, sorted; without a folder those of the package."""
    return sorted(path.stem for path in (folder or FOLDER).glob(f"*{FACTS}"))


def find(name: str, folder: Path | None = None) -> Path:
    """The file of weights of a model, by `NAME` or `pretrained:NAME`.

    Raises UserError for an unknown name, and where one of the model's files is missing.
    """
    name = name.removeprefix(PREFIX)
    place = folder or FOLDER
    there = names(place)
    weights = place / f"{name}{WEIGHTS}"
    if name in there:
        _need(weights)
        return weights
    if "/" not in name and weights.is_file():
        _need(weights.with_suffix(FACTS))
    near = difflib.get_close_matches(name, there, n=1)
    meant = f"did you mean {PREFIX}{near[0]}? There are" if near else "there are"
    listed = f"{meant} {', '.join(there)}" if there else "none comes with this installation"
    raise UserError(f"there is no pretrained model {name!r}; {listed}")


def read_facts(weights: Path) -> dict[str, Any]:
    """What NAME.json says of the model whose file of weights this is.

    "triptych" holds the block of the checkpoint (see `training.versions.block`), "metrics" its
    scores by split and weights, "card" the card's texts, "tied" name -> name of the tensor that
    it shares. Raises UserError where the file is missing, damaged or of another format.
    """
    path = weights.with_suffix(FACTS)
    _need(path)
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged, it is no JSON ({error}); {_REMEDY}") from None
    found = facts.get("format") if isinstance(facts, dict) else None
    if found != FORMAT:
        what = "no format number" if found is None else f"format {found!r}"
        raise UserError(
            f"{path} has {what}; this version of Triptych reads format {FORMAT} of pretrained "
            "models"
        )
    if missing := [key for key in _NEEDED if key not in facts]:
        raise UserError(f"{path} is damaged, it lacks {', '.join(missing)}; {_REMEDY}")
    return facts


def read_card(name: str, folder: Path | None = None) -> str:
    """The card of a model: Markdown. Raises UserError as `find` does, and where it is missing."""
    path = find(name, folder).with_suffix(CARD)
    _need(path)
    return path.read_text(encoding="utf-8")


_REMEDY = "install Triptych again, or export the model again with scripts/export_pretrained"


def _need(path: Path) -> None:
    if not path.is_file():
        raise UserError(
            f"the pretrained model {path.stem} is not whole: {path} is missing; {_REMEDY}"
        )
