"""For scripts that any Python may start: on in .venv where that one lacks what they need."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

VENV = Path(__file__).resolve().parents[1] / ".venv"


def lacks(package: str) -> bool:
    """Whether this Python lacks a package that the one of .venv may have."""
    return find_spec(package) is None and sys.prefix != str(VENV)


def go_on(package: str, parser: argparse.ArgumentParser) -> None:
    """Return where the package is there; else begin the script again in .venv, as it was called.

    Ends in the parser's error, exit code 2, where .venv is not there or lacks the package too.
    """
    python = VENV / "bin/python"
    if lacks(package) and python.exists():
        os.execv(python, [str(python), *sys.argv])
    if find_spec(package) is None:
        parser.error(f"{package} is not installed here; run scripts/setup first")
