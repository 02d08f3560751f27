"""Trained models shipped with the package, found by name.

A model NAME is three files in this folder: NAME.safetensors (weights in bf16 or int8), NAME.json
(settings, vocabulary, versions, metrics and the hash of the weights) and NAME.md (the model card).
`scripts/export_pretrained` writes them. A folder of `triptych export` has the same content as
model.safetensors, config.json and README.md. `training.run.checkpoint` reads the weights.
Imports nothing heavy, so that a wrong name is reported at once.
"""

import json
from pathlib import Path
from typing import Any

from triptych.errors import UserError, unknown

PREFIX = "pretrained:"
"""Begins a name given in place of a checkpoint file; `./pretrained:NAME` is a file of that name."""
FOLDER = Path(__file__).parent
"""Folder of the models."""
FORMAT = 1
"""Number of the layout of the three files; others are refused."""

WEIGHTS, METADATA, CARD = ".safetensors", ".json", ".md"
FOLDER_WEIGHTS, FOLDER_METADATA, FOLDER_CARD = "model.safetensors", "config.json", "README.md"
"""Names of the three files in a folder of `triptych export`."""
EXPORTED = "triptych_export"
"""Key of the metadata in a config.json that is of another library too."""


def names() -> list[str]:
    """Return the names of the models, sorted."""
    return sorted(path.stem for path in FOLDER.glob(f"*{METADATA}"))


def find(name: str) -> Path:
    """Return the weights file of a model, by `NAME` or `pretrained:NAME`; UserError if unknown."""
    name = name.removeprefix(PREFIX)
    if name not in (known := names()):
        raise unknown("pretrained model", name, known)
    return FOLDER / f"{name}{WEIGHTS}"


def weights_in(folder: Path) -> Path:
    """Return the weights file of a folder of `triptych export`; UserError for another folder."""
    for best in (folder / "checkpoints" / "best.ckpt", folder / "best.ckpt"):
        if best.is_file():
            raise UserError(f"{folder} is the folder of a run; did you mean {best}?")
    for name in (FOLDER_METADATA, FOLDER_WEIGHTS):
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} is a folder without {name}; expected a checkpoint file, or a folder of "
                "`triptych export --format safetensors` or hf; `triptych serve` opens those of "
                "CTranslate2 too"
            )
    return folder / FOLDER_WEIGHTS


def read_metadata(weights: Path) -> dict[str, Any]:
    """Return the content of NAME.json for a weights file, of config.json for model.safetensors.

    "triptych" holds the header (see `training.run.checkpoint`), "metrics" the scores by split and
    dtype, "card" the texts of the model card, "tied" the tensors that share storage, name by name.
    Raises UserError where the file is missing, damaged, of another format or not of Triptych.
    """
    exported = weights.name == FOLDER_WEIGHTS
    path = weights.with_name(FOLDER_METADATA) if exported else weights.with_suffix(METADATA)
    again = "export the model again" if exported else "install Triptych again"
    try:
        metadata: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is missing or damaged ({error}); {again}") from None
    if exported and isinstance(metadata, dict):
        metadata = metadata.get(EXPORTED, metadata)
    if not isinstance(metadata, dict) or "triptych" not in metadata:
        raise UserError(
            f"{path} was not written by Triptych (it has no key 'triptych'); expected a model that "
            "Triptych exported"
        )
    if metadata.get("format") != FORMAT:
        raise UserError(
            f"{path} has format {metadata.get('format')}; this version of Triptych reads format "
            f"{FORMAT} of exported models"
        )
    return metadata


def read_card(name: str) -> str:
    """Return the model card, Markdown. Raises UserError as `find` does."""
    return find(name).with_suffix(CARD).read_text(encoding="utf-8")
