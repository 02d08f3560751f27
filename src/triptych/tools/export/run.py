"""One export: the files of a format, the model card, and the comparison of translations."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from triptych import pretrained
from triptych.tools.export import FORMATS
from triptych.tools.export.card import render_card
from triptych.tools.export.folder import atomic_folder
from triptych.tools.export.source import Source, Written

BEAMS = (1, 5)
"""Beams with which translations are compared."""


def export(
    source: Source, name: str, path: Path, *, lines: Sequence[str] | None = None
) -> list[str]:
    """Write a model into a folder of `check_folder`; return what was compared, in sentences.

    name: of the format. lines: to translate with CTranslate2 and with Triptych; None for no
    comparison. Raises UserError for a model that the format cannot represent.
    """
    form = FORMATS[name]
    with atomic_folder(path) as folder:
        written: Written = import_module(form.module).write(source, folder)
        sections = []
        if written.checks:
            listed = "\n".join(f"- {check}" for check in written.checks)
            sections.append(f"## Checked when it was exported\n\n{listed}")
        if lines is not None:
            from triptych.tools.export.comparison import as_markdown, compare

            sections.append(as_markdown([compare(source, folder, lines, beam) for beam in BEAMS]))
        card = render_card(
            {
                "name": source.name,
                "card": source.card,
                "metrics": source.metrics,
                "parameters": source.parameters,
                "triptych": source.header,
            },
            source="FOLDER" if form.opens else "CHECKPOINT",
            use=written.use,
            weights=written.weights,
            sections=sections,
        )
        (folder / pretrained.FOLDER_CARD).write_text(card, encoding="utf-8")
    return [*written.checks, *sections[1:]]
