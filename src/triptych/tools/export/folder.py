"""Files of an export with its card."""

from importlib import import_module
from pathlib import Path

from triptych import pretrained
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
        "step.onnx",
        "onnx.json",
    )
)
"""Names of all files that exports write; a folder with another file is never replaced."""


def export(original: Original, name: str, folder: Path) -> list[str]:
    """Write a model into a new folder; return what was compared, in sentences.

    name: of the format. Raises UserError for a model that the format cannot represent.
    """
    form = FORMATS[name]
    written: Written = import_module(form.module).write(original, folder)
    sections = []
    if written.checks:
        listed = "\n".join(f"- {check}" for check in written.checks)
        sections.append(f"## Checked when it was exported\n\n{listed}")
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
    return written.checks
