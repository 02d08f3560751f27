"""Header of a checkpoint: settings as JSON types, versions, and the commit of the code."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib import metadata as packages
from pathlib import Path
from typing import Any

import torch

import triptych

FORMAT = 1
"""Version of the checkpoint's layout; a reader refuses a higher one."""


@cache
def code_commit() -> str | None:
    """Return the git commit of the running code, with "-dirty" if tracked files were changed.

    None if the code is installed rather than a checkout, or without git.
    """
    folder = Path(triptych.__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return answer.stdout.strip()

    try:
        # An installed package may lie inside another repository, which does not track it.
        git("ls-files", "--error-unmatch", "__init__.py")
        commit = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def versions() -> dict[str, str]:
    """Return the versions of Triptych, torch, Lightning and Python."""
    return {
        "triptych": triptych.__version__,
        "torch": str(torch.__version__),
        "lightning": packages.version("pytorch-lightning"),
        "python": platform.python_version(),
    }


def header(
    metadata: dict[str, Any], *, seed: int, step: int, metrics: dict[str, float]
) -> dict[str, Any]:
    """Return checkpoint["triptych"]: what `Domain.restore` needs, and how the weights were made."""
    return {
        "format": FORMAT,
        **metadata,
        "versions": versions(),
        "commit": code_commit(),
        "seed": seed,
        "step": step,
        "metrics": dict(metrics),
    }
