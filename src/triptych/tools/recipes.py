"""Recipes by name: programs that write the text files of a config, and the folder that they write.

They lie in `scripts/recipes/` of the repository, which the wheel carries.
"""

import argparse
import hashlib
import platform
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import triptych
from triptych.errors import UserError, unknown
from triptych.files.results import json_bytes, new_folder
from triptych.tools.carried import carried

FOLDER = carried("recipes")
PROVENANCE = "recipe.json"
"""File of a recipe's folder that says how it was made."""


def names() -> list[str]:
    """Return the names of the recipes."""
    return sorted(file.stem for file in FOLDER.glob("[!_]*.py"))


def about(name: str) -> str:
    """Return the first sentence of a recipe's docstring, without running it."""
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8").split('"""')[1].splitlines()[0]


def load(name: str) -> Any:
    """Return the module of a recipe; UserError for an unknown name."""
    if name not in names():
        raise unknown("recipe", name, names())
    return import_module(f"triptych.recipes.{name}")


def needed_for(text: str) -> list[str]:
    """Return the recipes that write a folder which a text, such as a config, names: data/NAME."""
    found = re.findall(rf"\bdata/({'|'.join(names())})(?![-\w])", text)
    return list(dict.fromkeys(found))


def advise(error: UserError) -> None:
    """Raise the refusal of a missing file that a recipe writes, with the recipe's command."""
    recipes = needed_for(str(error))
    if recipes and "does not exist" in str(error):
        raise UserError(f"{error}; `triptych data make {recipes[0]}` writes it") from error


def make(name: str, words: Sequence[str]) -> Path:
    """Run a recipe with the options `words` and return the folder that it wrote.

    The folder appears when all files are complete. Raises UserError for a wrong option, for a
    folder that exists and as the recipe does.
    """
    from triptych.config.schema import build, parse_settings, parser_for, to_plain

    recipe = load(name)
    parser = parser_for(
        recipe.Options,
        prog=f"triptych data make {name}",
        description=recipe.__doc__,
        config=False,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--out", metavar="DIR", default=f"data/{name}", help="Folder to create.")
    values, locate = parse_settings(parser, words)
    options, out = build(recipe.Options, values, locate=locate), values["out"]
    with new_folder(out) as folder:
        files = {file: _write(folder / file, rows) for file, rows in recipe.main(options)}
        provenance = {
            "recipe": name,
            "about": recipe.__doc__,
            "options": to_plain(options),
            "triptych": triptych.__version__,
            "python": platform.python_version(),
            "files": files,
        }
        (folder / PROVENANCE).write_bytes(json_bytes(provenance))
    return Path(out)


def _write(path: Path, rows: Iterable[str | tuple[str, ...]] | bytes) -> dict[str, int | str]:
    """Write the rows or the content of a file; return its number of lines or bytes and its hash."""
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(rows, bytes):
        path.write_bytes(rows)
        return {"bytes": len(rows), "sha256": hashlib.sha256(rows).hexdigest()}
    n_lines = 0
    with path.open("wb") as file:
        for n_lines, row in enumerate(rows, start=1):
            cells = [row] if isinstance(row, str) else row
            if any("\n" in cell or (len(cells) > 1 and "\t" in cell) for cell in cells):
                raise UserError(f"{path.name}, line {n_lines} has a line end or a tab in a cell")
            line = "\t".join(cells).encode() + b"\n"
            digest.update(line)
            file.write(line)
    return {"lines": n_lines, "sha256": digest.hexdigest()}
