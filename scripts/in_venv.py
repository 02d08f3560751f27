"""For scripts that any Python may start: their parser, and a restart in .venv for its packages."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the docstring of the script."""
    about, _, rest = (doc or "").partition("\n")
    return argparse.ArgumentParser(
        description=about, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def has(package: str) -> bool:
    """Return whether this Python has a package."""
    return find_spec(package) is not None


def lacks(package: str) -> bool:
    """Return whether this Python lacks a package and is not the one of .venv."""
    return not has(package) and sys.prefix != str(VENV)


def go_on(package: str, parser: argparse.ArgumentParser) -> None:
    """Restart the script with the Python of .venv where a package is missing; find Triptych in src.

    Ends in the parser's error, exit code 2, where .venv is missing or lacks the package too.
    """
    python = VENV / "bin/python"
    if lacks(package) and python.exists():
        os.execv(python, [str(python), *sys.argv])
    if not has(package):
        parser.error(f"{package} is not installed here; run scripts/setup first")
    sys.path.insert(0, str(ROOT / "src"))
