"""What the tests of `pretrained:NAME` and of `scripts/export_pretrained` share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))  # where the script finds what it imports
TEXTS = {
    "what": "Draws tiny things",
    "data": "A source made up by this test",
    "terms": "nobody's, free of any",
    "time": "three steps",
    "hardware": "whatever runs the tests",
    "figure": "4.2 units on test",
}
OPTIONS = [word for key, text in TEXTS.items() for word in (f"--{key}", text)]


def load_script() -> ModuleType:
    loader = SourceFileLoader("export_pretrained", str(ROOT / "scripts/export_pretrained"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


SCRIPT = load_script()


def rewritten(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint with something in it changed."""
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, target)
    return target
