"""The table of simplified characters is OpenCC's."""

from __future__ import annotations

import sys

import pytest

from triptych.errors import UserError
from triptych.tools import recipes

simplified = recipes.load("simplified")


def test_characters_are_those_of_opencc() -> None:
    convert = pytest.importorskip("opencc").OpenCC("t2s").convert
    ((name, (header, *rows)),) = simplified.main(simplified.Options())
    assert (name, header) == ("characters.tsv", ("character", "read_as"))
    table = {ord(before): after for before, after in rows}
    for code in range(0x4E00, 0xA000):
        assert chr(code).translate(table) == convert(chr(code))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opencc", None)
    with pytest.raises(UserError, match=r"triptych\[chinese\]"):
        dict(simplified.main(simplified.Options()))
