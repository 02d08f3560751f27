"""Tables of numbers in words for tests of translation, by the recipe numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triptych.domains.translation.sources import TabSeparated
from triptych.tools import recipes


def write_numbers(folder: Path, **options: Any) -> TabSeparated:
    """Write the splits into a folder, of numbers below 1,000 by default; return their source."""
    recipe = recipes.load("numbers")
    wanted = recipe.Options(**{"high": 999, **options})
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in recipe.main(wanted):
        text = "".join("\t".join(row) + "\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")
    return TabSeparated(
        wanted.source_language,
        wanted.target_language,
        directory=str(folder),
        files={split: [f"{split}.tsv"] for split in recipe.SPLITS},
        targets="symbols",
    )
