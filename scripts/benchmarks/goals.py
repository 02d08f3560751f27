"""The project's speed and memory goals, each a quotient of two measured figures."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.measure import Table
from benchmarks.setting import Setting

PEAK = "peak memory, MiB"
GPT2, SDPA, MARIAN = "Hugging Face GPT-2", "hand-written SDPA decoder", "Hugging Face Marian"
FULL, SKEWING, RELATIVE = "SDPA, full", "relative, published skewing", "Triptych relative"


@dataclass(frozen=True)
class Goal:
    """Speed of a row over that of another one at the least, or its peak memory at most."""

    figure: str
    limit: float
    row: str
    base: str
    table: str
    base_table: str = ""
    """Where the base is in another table."""
    column: str = "speed"

    def value(self, tables: dict[str, Table]) -> float | None:
        """The quotient; None where a figure was not measured."""
        found = []
        for key, name in ((self.table, self.row), (self.base_table or self.table, self.base)):
            row = tables[key].row(name) if key in tables else None
            if row is None:
                return None
            found.append(row.extra.get(PEAK) if self.column == PEAK else row.ratio)
        above, below = found
        return above / below if above and below else None

    def result(self, tables: dict[str, Table]) -> dict[str, str | float | None]:
        """The goal and whether it is met, for JSON and the table."""
        value, limit, at_least = self.value(tables), self.limit, self.column != PEAK
        good = value is not None and (value >= limit if at_least else value <= limit)
        met = "not measured" if value is None else "yes" if good else "no"
        goal = f"{'≥' if at_least else '≤'} {limit:g}"
        return {"figure": self.figure, "measured": value, "goal": goal, "met": met}


def goals(setting: Setting) -> list[Goal]:
    """All goals, in the dtypes that the device has hardware for."""
    found, full = [], "Triptych full"
    for dtype in setting.dtypes:
        line, long = f"attention/2048/{dtype}", f"attention/8192/{dtype}"
        what = f"relative attention, length 2048, {dtype}"
        found += [
            Goal(f"{full} over {SDPA}, {dtype}", 0.95, full, SDPA, f"training/{dtype}"),
            Goal(f"{what}: speed over published skewing", 2.2, RELATIVE, SKEWING, line),
            Goal(f"{what}: memory over skewing", 0.25, RELATIVE, SKEWING, line, "", PEAK),
        ]
        what = f"relative attention, memory of length 8192 over 2048 (linear: 4), {dtype}"
        found.append(Goal(what, 4.5, RELATIVE, RELATIVE, long, line, PEAK))
        for grid, limit in (("32x32x3", 1.6), ("64x64x1", 3.5)):
            for order in ("raster", "blocks"):
                what, row = f"local 2-D over full, {grid}, {dtype}", f"Triptych local 2-D, {order}"
                found.append(Goal(f"{what}, {order}", limit, row, FULL, f"images/{grid}/{dtype}"))
    for batch, limit in ((1, 1.3), (32, 2.0)):
        what, base = f"generation over Hugging Face's in fp32, batch {batch}", f"{GPT2}, fp32"
        dtype, key = setting.dtypes[-1], f"decoding/{batch}"
        found.append(Goal(f"{what}, {dtype}", limit, f"Triptych, {dtype}", base, key))
    what, rows = "generation, int8 over fp32, d 512, batch 1", ("Triptych, int8", "Triptych, fp32")
    return [*found, Goal(what, 1.3, *rows, "decoding/1")]
