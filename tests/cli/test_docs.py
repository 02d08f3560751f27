"""docs/cli.md says what the parsers say."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_the_command_line_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.setenv("COLUMNS", "80")
    loader = SourceFileLoader("cli_docs", str(ROOT / "scripts/cli_docs"))
    spec = importlib.util.spec_from_loader("cli_docs", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "cli_docs", module)
    loader.exec_module(module)
    found = module.document().splitlines()
    written = (ROOT / "docs/cli.md").read_text(encoding="utf-8").splitlines()
    assert found == written, "regenerate it: scripts/cli_docs > docs/cli.md"
