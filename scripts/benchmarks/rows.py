"""What a measurement leaves: rows in tables in sections, as plain data for JSON and Markdown."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Row:
    """One line of a table."""

    name: str
    state: str = "measured"
    """`measured`, `skipped` or `failed`; the reason of the last two stands in `why`."""
    why: str = ""
    dtype: str = ""
    first_s: float | None = None
    """Seconds of the first call, compilation included; it counts nowhere."""
    median_s: float | None = None
    """Median seconds of a call over the quiet rounds, over all where a row of the table has fewer
    than 3 of them."""
    min_s: float | None = None
    rounds: int = 0
    quiet: int | None = None
    """Rounds in which other processes used less than 5 % of the machine; None where unknown."""
    ratio: float | None = None
    """Work per second over the base's; above 1 is faster than the base."""
    rate: float | None = None
    """Work per second, in the table's unit."""
    peak_mib: float | None = None
    """Peak memory of a call, in MiB: on a CPU beyond what the process held before, on a GPU with
    the inputs, the weights and the optimizer's state."""
    extra: dict[str, float] = field(default_factory=dict)
    """Further figures by name, each with its unit in the name."""

    def gone(self, state: str, why: str) -> Row:
        """The same row, without figures: why it has none."""
        return Row(self.name, state=state, why=why, dtype=self.dtype)


@dataclass
class Table:
    """Rows that were measured in turn and compare with one base."""

    key: str
    """How the summary finds it, as `decoder/fp32`."""
    title: str
    base: str
    unit: str
    """What the rate counts, as `tokens`."""
    sizes: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    note: str = ""

    def row(self, name: str) -> Row | None:
        """The row of that name, if it has figures."""
        for row in self.rows:
            if row.name == name and row.state == "measured":
                return row
        return None

    def compare(self) -> None:
        """Set every row's ratio to the base's rate."""
        base = self.row(self.base)
        for row in self.rows:
            if base is not None and base.rate and row.rate:
                row.ratio = row.rate / base.rate


@dataclass
class Section:
    """What one section gave; `error` says why its later tables are missing."""

    name: str
    date: str
    command: str
    seconds: float = 0.0
    tables: list[Table] = field(default_factory=list)
    error: str = ""
    commit: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.error) or any(
            row.state == "failed" for table in self.tables for row in table.rows
        )

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Section:
        tables = [
            Table(**{**table, "rows": [Row(**row) for row in table["rows"]]})
            for table in data["tables"]
        ]
        return cls(**{**data, "tables": tables})
