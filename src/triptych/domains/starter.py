"""Starter configs: what a domain says about a user's data, and what its looks have in common."""

from __future__ import annotations

import math
import statistics
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from triptych.config.template import Setting
from triptych.errors import UserError
from triptych.files.splits import split_at

HELD_OUT = ("validation", "test")
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""Shares of held-out items to choose from."""


@dataclass(frozen=True)
class Starter:
    """First run on a user's data: a shipped config and the settings that differ from it."""

    template: str
    """Short name of a shipped config of the domain."""
    found: list[str]
    """Sentences about the data: numbers, sizes, what cannot be used."""
    settings: dict[str, Setting]
    """By dotted key, without `init_args`."""
    advice: list[str] = field(default_factory=list)
    """Sentences about what the user may want to change."""
    sample: str = ""
    """Further options of `triptych sample` that the model needs, with a space before them."""


@dataclass(frozen=True)
class Size:
    """Model and run that are suggested for data of up to some amount."""

    n_layers: int
    d_model: int
    n_heads: int
    d_ff: int
    dropout: float
    batch: int
    """Images, windows or tokens of a batch."""
    epochs: int
    below: float = math.inf
    """Amount of data, in the unit of the domain, from which the next size is suggested."""
    learning_rate: float | None = None
    """None for that of the template."""
    vocabulary: int | None = None
    """Of domains that choose it by the same amount."""

    def settings(self, why: str) -> dict[str, Setting]:
        """Return the settings of the model; why: what its size is for."""
        settings = {
            "model.transformer.n_layers": Setting(self.n_layers, why),
            "model.transformer.d_model": Setting(self.d_model),
            "model.transformer.n_heads": Setting(self.n_heads),
            "model.transformer.feed_forward.d_ff": Setting(self.d_ff),
            "model.transformer.dropout": Setting(self.dropout, "more of it if the model overfits"),
        }
        if self.learning_rate is not None:
            settings["optim.learning_rate"] = Setting(self.learning_rate)
        return settings


def size_for(amount: float, sizes: Iterable[Size]) -> Size:
    """Return the first of the sizes, in rising order, that is for this amount of data."""
    return next(size for size in sizes if amount < size.below)


def held_out_share(
    places: Collection[float], splits: Iterable[str], *, usual: float, least: int = 2
) -> tuple[float, Counter[str]]:
    """Return the share of each held-out split, and the number of items in each split.

    The share is `usual`, or a larger one where that would leave a split with fewer than `least`
    items. places: of all items, as `hash_position` returns them. splits: names in the order of the
    source. Raises UserError where a split stays empty with the largest share too.
    """
    names = list(splits)
    counts: Counter[str] = Counter()
    for share in (share for share in SHARES if share >= usual):
        counts = Counter(split_at(place, dict.fromkeys(names, share)) for place in places)
        if min(counts[name] for name in names) >= least and counts["train"]:
            return share, counts
    empty = [name for name in ("train", *names) if not counts[name]]
    if empty:
        raise UserError(
            f"{len(places)} items are too few: the hash of their content leaves none for "
            f"{' and '.join(empty)}; add more"
        )
    return SHARES[-1], counts


def held_out_settings(
    places: Collection[float], splits: Sequence[str], what: str, *, usual: float, least: int = 2
) -> dict[str, Setting]:
    """Return the settings of `held_out_share`, with the number of items in each held-out split.

    splits: none for data that have splits of their own. what: name of the items.
    """
    if not splits:
        return {}
    share, counts = held_out_share(places, splits, usual=usual, least=least)
    return {
        f"data.source.{name}_share": Setting(share, f"{counts[name]:,} {what}") for name in splits
    }


def span(values: Sequence[float], unit: str = "") -> str:
    """Return smallest, median and largest value: `3 to 40 tokens (median 12)`."""
    least, most, middle = min(values), max(values), statistics.median(values)
    if least == most:
        return f"{least:,.0f}{unit}"
    return f"{least:,.0f} to {most:,.0f}{unit} (median {middle:,.0f})"


def steps(
    *, batches: float, epochs: int, least: int, most: int, validations: int = 8
) -> dict[str, Setting]:
    """Return the settings of a run's length: about `epochs` passes over `batches` batches."""
    wanted = min(most, max(least, round(batches * epochs)))
    interval = max(1, wanted // validations)
    total = interval * validations
    why = f"about {total / max(batches, 1e-9):,.0f} passes over the training data"
    return {
        "trainer.max_steps": Setting(total, why),
        "trainer.val_check_interval": Setting(interval),
        "trainer.log_every_n_steps": Setting(min(50, max(1, interval // 5))),
        "optim.schedule.warmup_steps": Setting(min(400, max(10, total // 10))),
    }


def letters(lines: Iterable[str]) -> str:
    """Return the shares of the two most frequent scripts: `LATIN 98%, GREEK 2%`."""
    counts = scripts(lines)
    shares = {script: count / counts.total() for script, count in counts.most_common(2)}
    shown = (f"{script} {share:.0%}" for script, share in shares.items() if share >= 0.005)
    return ", ".join(shown) or "none"


def scripts(lines: Iterable[str]) -> Counter[str]:
    """Return the number of letters of each script, as the names of Unicode call it: `LATIN`."""
    found: Counter[str] = Counter()
    counts = Counter(letter for line in lines for letter in line if letter.isalpha())
    for letter, count in counts.items():
        found[unicodedata.name(letter, "UNKNOWN").split()[0].removesuffix("-UNIFIED")] += count
    return found
