"""What several tests of the core share."""

from __future__ import annotations

import pytest

from triptych.core.attention import local2d, pitch_time, relative
from triptych.core.attention.backends import dispatch as choice
from triptych.core.attention.backends import grid_fused, grid_tiles, passes
from triptych.core.attention.backends import tiled as tiles


@pytest.fixture(params=["as chosen", "many small tiles"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernels that short sequences get, and those of long ones at the same size.

    Tiles of three queries, one or two heads at a time and all heads side by side, few of their
    weights kept for the backward pass; pictures always in blocks.
    """
    if request.param == "many small tiles":
        for module in (choice, pitch_time, relative):
            monkeypatch.setattr(module, "queries_per_tile", lambda length, like: 3)
        for module in (tiles, grid_tiles, grid_fused):
            monkeypatch.setattr(module, "n_lanes", lambda like, heads, _: heads)
        monkeypatch.setattr(choice, "kernel_for", lambda q, n_keys, **_: "tiles")
        monkeypatch.setattr(tiles, "room", lambda like: 130)
        monkeypatch.setattr(passes, "KEPT", 2000)  # some weights are kept, the rest computed again
        monkeypatch.setattr(grid_tiles, "room", lambda like: 900)
        monkeypatch.setattr(grid_tiles, "weights_to_keep", passes.to_keep)
        monkeypatch.setattr(local2d, "LARGEST_SHARE", 1e9)
    name: str = request.param
    return name
