"""Pages are found by the name of a domain, and what they compute needs no gradio."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from triptych import domains, play
from triptych.errors import UserError
from triptych.play.pages import page_of


def test_a_domain_without_a_page_is_refused_in_a_sentence() -> None:
    assert "language" in domains.names()
    for word in ("language", "shared", "somebody.domain"):
        with pytest.raises(UserError, match=rf"x\.ckpt is of the domain {word}.*image, music, tr"):
            page_of(word, "x.ckpt")


def test_what_a_page_computes_needs_no_gradio() -> None:
    files = sorted(Path(play.__file__).parent.glob("*.py"))
    assert {"image.py", "music.py", "translation.py"} <= {path.name for path in files}
    for path in files:
        imports = [
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        assert "gradio" not in ast.unparse(ast.Module(imports, [])), path.name
