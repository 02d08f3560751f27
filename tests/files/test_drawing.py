"""Fonts of drawings, and the letters that none of them has."""

from __future__ import annotations

import importlib.util
import io
import warnings

import numpy as np
import pytest
from PIL import Image

from triptych.files import drawing


def picture(text: str) -> np.ndarray:
    with drawing.fonts_of_every_script():
        figure = drawing.new_figure(1, 1, fitted=False)
        figure.text(0.2, 0.4, text, fontsize=30)
        return np.asarray(Image.open(io.BytesIO(drawing.png(figure))))


def test_korean_and_chinese_have_letters_of_their_own_where_the_extra_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(drawing.FONT_PACKAGE, reason="extra fonts")
    with drawing.missing_letters_told():
        korean, chinese = picture("저"), picture("機")
    assert capsys.readouterr().err == ""
    assert (korean != chinese).any()
    monkeypatch.setattr(drawing, "installed_fonts", lambda: [drawing.DEFAULT_FONT])
    with drawing.missing_letters_told():
        assert (picture("저") != korean).any(), "a box"
        picture("機")
    assert "機 저" in capsys.readouterr().err


def test_without_the_extra_the_fonts_of_the_system_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawing, "FONT_PACKAGE", "no_such_package")
    assert importlib.util.find_spec(drawing.FONT_PACKAGE) is None
    assert drawing.installed_fonts.__wrapped__()[0] == drawing.DEFAULT_FONT


def test_other_warnings_than_missing_letters_stay() -> None:
    with pytest.warns(UserWarning, match="of another kind"), drawing.missing_letters_told():
        warnings.warn("of another kind", UserWarning, stacklevel=1)
