"""For scripts that any Python may start: restart in .venv where packages are missing."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

VENV = Path(__file__).resolve().parents[1] / ".venv"


def has(package: str) -> bool:
    """Return whether this Python has a package."""
    return find_spec(package) is not None


def lacks(package: str) -> bool:
    """Return whether this Python lacks a package and is not the one of .venv."""
    return not has(package) and sys.prefix != str(VENV)


def go_on(package: str, parser: argparse.ArgumentParser) -> None:
    """Return where the package is installed; otherwise restart the script with the Python of .venv.

    Ends in the parser's error, exit code 2, where .venv is missing or lacks the package too.
    """
    python = VENV / "bin/python"
    if lacks(package) and python.exists():
        os.execv(python, [str(python), *sys.argv])
    if not has(package):
        parser.error(f"{package} is not installed here; run scripts/setup first")
