"""Folder of an export with its card: checked before the work, complete or absent after it."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from triptych import pretrained
from triptych.errors import UserError
from triptych.files.results import atomic_folder, why_unwritable
from triptych.tools.export import FORMATS
from triptych.tools.export.card import render_card
from triptych.tools.export.original import Original, Written

FILES = frozenset(
    (
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "target_tokenizer.json",
        "generation_config.json",
        "model.bin",
        "shared_vocabulary.json",
        "source_vocabulary.json",
        "target_vocabulary.json",
        "encoder.onnx",
        "step.onnx",
        "onnx.json",
    )
)
"""Names of all files that exports write; a folder with another file is never replaced."""
BEAMS = (1, 5)
"""Beams with which translations are compared."""


def check_folder(out: str, *, overwrite: bool) -> Path:
    """Return the path of a folder to write; UserError where it exists with content.

    overwrite: an earlier export may be replaced.
    """
    path = Path(os.path.realpath(out))
    if not out or (path.exists() and not path.is_dir()):
        reason = f"{out} is a file" if out else "is empty"
        raise UserError(f"--out {reason}; expected the name of a folder to write")
    if (why := why_unwritable(path.parent)) is not None:
        raise UserError(f"cannot write --out {out}: {why}; expected a folder that can be created")
    entries = sorted(path.iterdir()) if path.exists() else []
    if entries and not overwrite:
        raise UserError(
            f"--out {out} already holds {entries[0].name}: choose another folder, or add "
            "--overwrite to replace an export"
        )
    if foreign := [entry.name for entry in entries if entry.name not in FILES or entry.is_dir()]:
        raise UserError(
            f"--out {out} holds {foreign[0]}, which no export writes; expected a new folder, or "
            "one with an earlier export alone"
        )
    return path


def export(
    original: Original, name: str, path: Path, *, lines: Sequence[str] | None = None
) -> list[str]:
    """Write a model into a folder of `check_folder`; return what was compared, in sentences.

    name: of the format. lines: to translate with CTranslate2 and with Triptych; None for no
    comparison. Raises UserError for a model that the format cannot represent.
    """
    form = FORMATS[name]
    with atomic_folder(path) as folder:
        written: Written = import_module(form.module).write(original, folder)
        sections = []
        if written.checks:
            listed = "\n".join(f"- {check}" for check in written.checks)
            sections.append(f"## Checked when it was exported\n\n{listed}")
        if lines is not None:
            from triptych.tools.export.comparison import as_markdown, compare

            sections.append(as_markdown([compare(original, folder, lines, beam) for beam in BEAMS]))
        card = render_card(
            {
                "name": original.name,
                "card": original.card,
                "metrics": original.metrics,
                "parameters": original.parameters,
                "triptych": original.header,
            },
            source="FOLDER" if form.opens else "CHECKPOINT",
            use=written.use,
            weights=written.weights,
            sections=sections,
        )
        (folder / pretrained.FOLDER_CARD).write_text(card, encoding="utf-8")
    return [*written.checks, *sections[1:]]
