"""The ratios that the project promised, computed from the tables of this run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.decoding_late import RATIO, READING
from benchmarks.rows import Row, Section, Table


class Line(NamedTuple):
    what: str
    value: float
    goal: str


class Tables:
    """All tables by key; a figure that is not there is None, and its line is left out."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self.by_key = {table.key: table for section in sections for table in section.tables}

    def table(self, key: str) -> Table | None:
        return self.by_key.get(key)

    def row(self, key: str, *starts: str) -> Row | None:
        """The row of that name; with "…" at the end, the first that begins so."""
        table = self.table(key)
        for start in starts if table else ():
            for row in table.rows if table else ():
                fits = row.name.startswith(start[:-1]) if start.endswith("…") else row.name == start
                if fits and row.state == "measured":
                    return row
        return None

    def speed(self, key: str, name: str, base: str) -> float | None:
        row, other = self.row(key, name), self.row(key, base)
        return row.rate / other.rate if row and other and row.rate and other.rate else None

    def extra(self, key: str, name: str, figure: str) -> float | None:
        row = self.row(key, name)
        return row.extra.get(figure) if row else None


def summary(sections: Sequence[Section]) -> list[Line]:
    """One line for each promise whose figures this run has."""
    tables = Tables(sections)
    every = (training, attention, images, decoding, translation)
    return [
        Line(what, value, goal)
        for part in every
        for what, value, goal in part(tables)
        if value is not None
    ]


Found = Iterator[tuple[str, float | None, str]]


def training(tables: Tables) -> Found:
    relative = {"fp32": 0.8, "bf16": 0.7}
    pairs = {"fp32": 1.1, "bf16": 1.3}
    for dtype in ("fp32", "bf16"):
        key = f"decoder/line/{dtype}"
        for peer in ("minimal", "torch.nn", "x-transformers", "GPT-2 (Hugging Face)"):
            value = tables.speed(key, "Triptych full", peer)
            yield f"training step, full, x {peer}, {dtype}", value, ">= 1"
        value = tables.speed(key, "Triptych relative", "Triptych full")
        yield f"training step, relative, x full, {dtype}", value, f">= {relative[dtype]}"
        value = tables.speed(key, "Triptych full", "Triptych full, attention dropout 0.1")
        yield f"training step, time with attention dropout, x without, {dtype}", value, "<= 1.15"
    for dtype in ("fp32", "bf16"):
        for mask in ("", ", padding masked"):
            value = tables.speed(
                f"translation/{dtype}", f"Triptych{mask}", f"torch.nn.Transformer{mask}"
            )
            what = f"training step, translation{mask}, x torch.nn.Transformer, {dtype}"
            yield what, value, f">= {pairs[dtype]}"


def attention(tables: Tables) -> Found:
    for dtype in ("fp32", "bf16"):
        key, skewing = f"attention/2048/{dtype}", "relative, published skewing"
        value = tables.speed(key, "Triptych relative", skewing)
        yield f"relative attention, L 2048, x published skewing, {dtype}", value, ">= 3.5"
        value = memory_ratio(tables.row(key, "Triptych relative"), tables.row(key, skewing))
        yield f"its peak memory, share of skewing's, {dtype}", value, "<= 0.2"
        long = tables.row(f"attention/8192/{dtype}", "Triptych relative")
        value = memory_ratio(long, tables.row(key, "Triptych relative"))
        yield f"its peak memory, L 8192 over L 2048, {dtype}", value, "<= 4.5"


def memory_ratio(row: Row | None, base: Row | None) -> float | None:
    if row is None or base is None or not row.peak_mib or not base.peak_mib:
        return None
    return row.peak_mib / base.peak_mib


def images(tables: Tables) -> Found:
    goals = {"32x32x3": ">= 1.8", "64x64x1": ">= 3.8", "64x64x3": ">= 3.8"}
    for dtype in ("fp32", "bf16"):
        for grid, goal in goals.items():
            for name in ("Triptych local 2-D", "Triptych local 2-D, block order"):
                value = tables.speed(f"pictures/{grid}/{dtype}", name, "SDPA full")
                yield (
                    f"{name.removeprefix('Triptych ')}, {grid}, x SDPA's full, {dtype}",
                    value,
                    goal,
                )
        for channels in (1, 3):
            small, large = (
                tables.extra(
                    f"pictures/{side}x{side}x{channels}/{dtype}",
                    "Triptych local 2-D",
                    "µs a pixel",
                )
                for side in (32, 128)
            )
            value = large / small if small and large else None
            what = f"local 2-D, time a pixel, 128x128x{channels} over 32x32x{channels}, {dtype}"
            yield what, value, "<= 1.2"
    row = tables.row("states", "Triptych local 2-D")
    held = list(row.extra.values()) if row else []
    value = held[-1] / held[0] if held else None
    yield "local 2-D, decoding state, tallest over lowest picture", value, "1"


def decoding(tables: Tables) -> Found:
    hf = "GPT-2 (Hugging Face)"
    one, many = "decoding/1", "decoding/32"
    best = tables.row(one, "Triptych, fp32 weights") or tables.row(one, "Triptych")
    name = best.name if best else "Triptych"
    value = best.extra.get("x floor") if best else None
    yield "decoding, batch 1, fp32, time over the floor", value, "<= 1.6"
    yield f"decoding, batch 1, fp32, x {hf}", tables.speed(one, name, hf), ">= 1.6"
    value = tables.speed(one, "Triptych, int8 weights", name)
    yield "decoding, batch 1, int8 x fp32", value, ">= 1.5"
    value = tables.speed(many, "Triptych, bf16 weights", name)
    yield "decoding, batch 32, bf16 x fp32", value, ">= 2.2"
    value = tables.speed(many, "Triptych, bf16 weights", hf)
    yield f"decoding, batch 32, bf16 x {hf} in fp32", value, ">= 2.5"
    value = tables.speed(many, "Triptych, bf16 weights", f"{hf}, bf16")
    yield f"decoding, batch 32, bf16 x {hf} in bf16", value, ""
    late = tables.row("late", "Triptych, fp32 weights", "Triptych")
    if late:
        table = tables.table("late")
        what = table.title.split(",")[0] if table else ""
        longer = "and what its attention takes longer, measured"
        yield f"{what} {longer}", late.extra.get(RATIO), "<= 1.3"
        early_ms, late_ms = list(late.extra.values())[:2]
        value = (late_ms - late.extra[READING]) / early_ms
        yield f"{what}, less the time its keys take at full bandwidth (no goal)", value, ""


def translation(tables: Tables) -> Found:
    key, hf = "translating", "Marian (Hugging Face)"
    for how in ("greedy", "beam 4"):
        name = f"Triptych, {how}"
        row = tables.row(key, name)
        yield f"translating, {how}, sentences per second", row.rate if row else None, ""
        yield f"translating, {how}, x {hf}", tables.speed(key, name, f"{hf}, {how}"), ""
    value = tables.speed(key, "Triptych, greedy", "same weights without a cache, greedy")
    yield "translating, greedy, x the same weights without a cache", value, "> 1"
