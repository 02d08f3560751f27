"""The table of reproduced figures: rows out of reproductions.yaml, compared and printed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import yaml

from triptych.errors import UserError

DOMAINS = ("translation", "image", "music")
HIGHER_IS_BETTER = ("bleu", "bleu_papers", "chrf", "exact_match")
"""Every other metric is a cost: nats or bits."""
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Published:
    """What somebody else reached, or what cannot be passed."""

    figure: float
    split: str
    source: str


@dataclass(frozen=True)
class Row:
    """One row of the table; see the head of reproductions.yaml for what each field says."""

    name: str
    domain: str
    config: str
    metric: str
    splits: list[str]
    options: list[str] = field(default_factory=list)
    evaluate: list[str] = field(default_factory=list)
    published: Published | None = None
    ours: dict[str, dict[int, float]] = field(default_factory=dict)
    tolerance: float | None = None
    hardware: str | None = None
    minutes: float | None = None
    commit: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a row that says too little of its figures, or what cannot be."""
        if self.domain not in DOMAINS:
            raise ValueError(f"domain is {self.domain!r}; expected one of {', '.join(DOMAINS)}")
        if not isinstance(self.splits, list):
            raise ValueError(f"splits is {self.splits!r}; expected a list")
        if not self.splits:
            raise ValueError("splits is empty; expected the splits that are scored")
        named = [*self.ours, *([self.published.split] if self.published else [])]
        if unknown := [split for split in named if split not in self.splits]:
            raise ValueError(f"there is a figure for {unknown[0]}, which splits does not name")
        for split, figures in self.ours.items():
            if not isinstance(figures, dict) or not figures:
                raise ValueError(f"ours of {split} is {figures!r}; expected seed: figure")
            if not all(isinstance(figure, int | float) for figure in figures.values()):
                raise ValueError(f"ours of {split} is {figures!r}; expected numbers")
        if self.ours:
            for name in ("tolerance", "hardware", "minutes", "commit"):
                if getattr(self, name) is None:
                    raise ValueError(f"there is a figure of ours, but no {name}")

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is."""
        return 1 if self.metric in HIGHER_IS_BETTER else -1

    def limit(self, split: str) -> float | None:
        """The worst figure that counts as the same: our worst seed's, less the tolerance.

        None where nothing was measured.
        """
        if split not in self.ours:
            return None
        assert self.tolerance is not None
        worst = min(self.sign * figure for figure in self.ours[split].values())
        return self.sign * (worst - self.tolerance)

    def within(self, split: str, figure: float) -> bool | None:
        """Whether a measured figure is as good as the table's; None where it has none."""
        limit = self.limit(split)
        if limit is None:
            return None
        # Compared as they are printed; NaN is above nothing, so it is worse.
        return self.sign * (figure - limit) > -0.5e-4

    def in_words(self, split: str) -> str:
        """Our figure with its seeds: "0.3340 (3 seeds, 0.3310 to 0.3360)"."""
        if split not in self.ours:
            return NOT_MEASURED
        figures = sorted(self.ours[split].values())
        if len(figures) == 1:
            return f"{figures[0]:.4f} (1 seed)"
        spread = f"{figures[0]:.4f} to {figures[-1]:.4f}"
        return f"{mean(figures):.4f} ({len(figures)} seeds, {spread})"

    def train_command(self, seed: int) -> list[str]:
        """The words behind `triptych` that train it."""
        return [
            "train",
            self.domain,
            "--config",
            self.config,
            *self.options,
            "--run.seed",
            str(seed),
        ]

    def evaluate_command(self, split: str) -> list[str]:
        """The words behind `triptych` that score it, without files."""
        return ["evaluate", self.domain, *self.evaluate, "--split", split]


def read_rows(path: Path) -> dict[str, Row]:
    """The rows of a file by their names, in its order.

    Raises UserError for a file that is not there, is no YAML, or has a row that cannot be.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no rows; expected names with a mapping each")
    rows = {}
    for name, plain in content.items():
        try:
            rows[name] = _row(name, plain)
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}, row {name}: {error}") from error
    return rows


def _row(name: str, plain: Any) -> Row:
    if not isinstance(plain, dict):
        raise ValueError(f"expected a mapping, found {plain!r}")
    known = [part.name for part in dataclasses.fields(Row)]
    if unknown := [key for key in plain if key not in known]:
        raise ValueError(f"unknown key {unknown[0]}; known are {', '.join(known[1:])}")
    if missing := [key for key in ("domain", "config", "metric", "splits") if key not in plain]:
        raise ValueError(f"{missing[0]} is missing")
    given = {key: value for key, value in plain.items() if value is not None}
    if "published" in given:
        given["published"] = Published(**given["published"])
    return Row(name=name, **given)


def table(rows: dict[str, Row]) -> str:
    """The Markdown table of the README: a line for each row and split."""
    lines = [
        "| `scripts/reproduce` | split | metric | Triptych | to compare | training |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        for split in row.splits:
            compare = ""
            if row.published is not None and row.published.split == split:
                compare = f"{row.published.figure:.4g}: {row.published.source}"
            trained = ""
            if split in row.ours:
                trained = f"{row.minutes:g} min, {row.hardware}, {row.commit}"
            cells = (f"`{row.name}`", split, row.metric, row.in_words(split), compare, trained)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def listing(rows: dict[str, Row], root: Path) -> str:
    """The names of all rows with their figures and commands, for a person."""
    lines = []
    for row in rows.values():
        figures = ", ".join(f"{split} {row.in_words(split)}" for split in row.splits)
        there = "" if (root / row.config).is_file() else "  (there is no such file yet)"
        lines.append(f"{row.name}: {row.metric}: {figures}")
        lines.append(f"    triptych {' '.join(row.train_command(0))}{there}")
    return "\n".join(lines)
