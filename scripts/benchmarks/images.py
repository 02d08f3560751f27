"""Local 2-D attention over images beside full attention, without projections."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.attention import compare
from benchmarks.goals import FULL
from benchmarks.measure import Table
from benchmarks.setting import Setting
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig


def run(setting: Setting) -> Iterator[Table]:
    quick = ((32, 32, 3), (64, 64, 1))
    ways: dict[str, AttentionConfig | str] = {FULL: FULL, "Triptych full": Full()}
    ways |= {f"Triptych local 2-D, {order}": Local2D(order=order) for order in ("raster", "blocks")}
    for dtype in setting.dtypes:
        for grid in setting.sizes(((16, 16, 1),), quick, (*quick, (64, 64, 3))):
            yield compare(setting, "images", grid, dtype, ways)
