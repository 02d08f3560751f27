"""Fixtures that several tests of the core share."""

from __future__ import annotations

import pytest

from triptych.core.attention.backends import dispatch, tiled


@pytest.fixture(params=["as chosen", "small tiles"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backends that short sequences get, and those of long ones at the same size.

    Small tiles: tiles of three queries and one head at a time, so that many borders of tiles are
    crossed; images always in windows.
    """
    if request.param == "small tiles":
        monkeypatch.setattr(tiled, "queries_per_tile", lambda device: 3)
        monkeypatch.setattr(tiled, "TILE_BYTES", 1)
        monkeypatch.setattr(dispatch, "windows_pay", lambda windows, length: True)
    name: str = request.param
    return name
