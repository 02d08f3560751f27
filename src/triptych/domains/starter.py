"""Starter configs: what a domain says about a user's data, and what its looks have in common."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from triptych.config.template import Setting
from triptych.domains.reading import read_in_order
from triptych.domains.sources import split_at
from triptych.errors import UserError

Item = TypeVar("Item")
Found = TypeVar("Found")

KINDS = {
    "images": (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
    "MIDI files": (".mid", ".midi"),
    "sound files": (".flac", ".m4a", ".mp3", ".ogg", ".wav"),
}
"""Suffixes of data that do not belong into one folder with each other."""
NAMED = 5
"""Files that are named where several cannot be used."""
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


class ReadFiles(Generic[Item, Found]):
    """Results of reading files, apart from the files that cannot be used.

    read: returns what one file holds, or as text why it cannot be used.
    """

    def __init__(
        self, read: Callable[[Item], Found | str], items: Sequence[Item], *, what: str
    ) -> None:
        self.found: list[Found] = []
        self.reasons: list[str] = []
        results = read_in_order(read, items, count=len(items), what=what)
        with closing(results):
            for result in results:
                if isinstance(result, str):
                    self.reasons.append(result)
                else:
                    self.found.append(result)

    def check(self, folder: Path, *, least: int, what: str) -> None:
        """Raise UserError where fewer than `least` files can be used."""
        if len(self.found) < least:
            raise UserError(
                f"{folder} has {len(self.found)} {what} that can be used; expected {least} or "
                f"more{'; ' + self.skipped() if self.reasons else ''}"
            )

    def skipped(self) -> str:
        """Return a sentence about the files that cannot be used; empty without one."""
        if not self.reasons:
            return ""
        more = ", ..." if len(self.reasons) > NAMED else ""
        named = ", ".join(self.reasons[:NAMED])
        count = len(self.reasons)
        cannot = "file cannot be used and is" if count == 1 else "files cannot be used and are"
        return f"{count} {cannot} left out: {named}{more}"


def data_files(folder: Path, suffixes: Collection[str], what: str) -> list[Path]:
    """Return the files of a folder with these suffixes, by name and without hidden ones.

    what: name of the files in KINDS. Raises UserError for a path that is no folder, an empty
    folder, one without such files, and one that holds data of another kind too.
    """
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"--data {folder} {found}; expected a folder of {what}")
    files = sorted(path for path in visible(folder) if path.is_file())
    chosen = [path for path in files if path.name.lower().endswith(tuple(suffixes))]
    numbers = Counter(path.suffix.lower() for path in files)
    if not chosen:
        common = numbers.most_common(NAMED)
        there = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in common)
        raise UserError(
            f"--data {folder} holds no {what} ({', '.join(sorted(suffixes))}); "
            f"{'found ' + there if files else 'it is empty'}"
        )
    check_one_kind(folder, files, what)
    return chosen


def check_one_kind(folder: Path, files: Sequence[Path], what: str) -> None:
    """Raise UserError where a folder of `what` holds data of another kind in KINDS too."""
    for other, endings in KINDS.items():
        mixed = [path for path in files if other != what and path.suffix.lower() in endings]
        if mixed:
            raise UserError(
                f"--data {folder} holds {len(mixed)} {other}, such as "
                f"{mixed[0].relative_to(folder)}, next to {what}; expected one kind of data"
            )


def visible(folder: Path) -> Iterator[Path]:
    """Yield everything at any depth of a folder that is not hidden."""
    for path in folder.rglob("*"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


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


def span(values: Sequence[float], unit: str = "") -> str:
    """Return smallest, median and largest value: `3 to 40 tokens (median 12)`."""
    least, most, middle = min(values), max(values), statistics.median(values)
    if least == most:
        return f"{least:,.0f}{unit}"
    return f"{least:,.0f} to {most:,.0f}{unit} (median {middle:,.0f})"


def sizes(
    *, n_layers: int, d_model: int, n_heads: int, d_ff: int, dropout: float, why: str
) -> dict[str, Setting]:
    """Return the settings of a model's size."""
    return {
        "model.transformer.n_layers": Setting(n_layers, why),
        "model.transformer.d_model": Setting(d_model),
        "model.transformer.n_heads": Setting(n_heads),
        "model.transformer.feed_forward.d_ff": Setting(d_ff),
        "model.transformer.dropout": Setting(dropout, "more of it where the model overfits"),
    }


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
        "optim.warmup_steps": Setting(min(400, max(10, total // 10))),
    }
