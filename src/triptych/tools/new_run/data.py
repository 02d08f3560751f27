"""A user's data: what a domain says about them, their files and splits, and what cannot be used.

A domain names a module that looks at data; `triptych new-run` makes settings of what it finds.
"""

import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from triptych.domains.options import counted
from triptych.errors import UserError
from triptych.files.folders import endings, named, visible_files
from triptych.files.reading import read_in_order
from triptych.files.splits import split_at, split_in_name
from triptych.text.tables import plain_name

Item = TypeVar("Item")
Found = TypeVar("Found")

ABOUT = ("readme", "license", "licence", "copying", "changelog", "citation", "notice", "about")
"""How the names of files begin that say something about the data."""
NO_DATA = (".xml", ".md", ".pdf", ".html", ".yaml", ".yml", ".py", ".sh", ".log", ".tmx", ".xlf")
"""How the names of files end that hold no text and no table."""
HELD_OUT = ("validation", "test")
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""Shares of held-out items to choose from."""


class Setting(NamedTuple):
    """New value of a setting, and the comment that says why."""

    value: Any
    why: str = ""


@dataclass(frozen=True)
class Description:
    """What a source finds in a user's data."""

    template: str
    """Short name of a shipped config of the domain that reads such data."""
    unit: str
    """What the amount counts: a heading of the sizes, see `triptych.tools.new_run.suggest`."""
    amount: float
    """Images, notes, sentence pairs or tokens."""
    items: float
    """What batches are made of, in one pass over the training data."""
    settings: dict[str, Setting]
    """What the data determine: source, shape, lengths. By dotted key, without `init_args`."""
    facts: list[str]
    """Sentences about numbers, lengths, splits and kinds, and about files that are not read."""
    advice: list[str] = field(default_factory=list)
    """Sentences about what the user may want to change."""
    passes: float = 1.0
    """Passes over the data for one of the table of sizes."""
    sample: str = ""
    """Further options of `triptych sample` that the model needs, with a space before them."""


def read_usable(
    read: Callable[[Item], Found | str],
    files: Sequence[Item],
    folder: Path,
    *,
    what: str,
    least: int,
    count: Callable[[Found], int] = lambda found: 1,
) -> list[Found]:
    """Return what usable files hold; UserError for fewer than `least`, with why others are none.

    read: returns what one file holds, or as text why it cannot be used. what: name of the items;
    count: their number in what a file holds.
    """
    with closing(read_in_order(read, files, count=len(files), what=f"{what} looked at")) as results:
        kept = [*results]
    reasons = [one for one in kept if isinstance(one, str)]
    found = [one for one in kept if not isinstance(one, str)]
    if (n_found := sum(map(count, found))) < least:
        why = f"; {len(reasons)} files cannot be used: {named(reasons)}" if reasons else ""
        raise UserError(
            f"{folder} has {n_found} {what} that can be used; expected {least} or more{why}"
        )
    return found


def data_files(folder: Path, suffixes: Collection[str], what: str) -> tuple[list[Path], list[Path]]:
    """Return the files of a folder with these suffixes, and the others; without hidden ones.

    what: name of the files. Raises UserError for a path that is no folder, an empty folder, and one
    without such files.
    """
    if not folder.is_dir():
        reason = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"--data {folder} {reason}; expected a folder of {what}")
    files = list(visible_files(folder))
    chosen = [path for path in files if path.name.lower().endswith(tuple(suffixes))]
    if not chosen:
        raise UserError(
            f"--data {folder} holds no {what}; it "
            f"{'holds ' + endings(files) if files else 'is empty'}"
        )
    return chosen, [path for path in files if path not in {*chosen}]


def is_about(name: str) -> bool:
    """Return whether a file says something about the data, such as README, and is none of them."""
    stem = name.rpartition("/")[2].lower().lstrip("_")
    return stem.startswith(ABOUT) or stem.endswith(NO_DATA)


def by_split(names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return files by split, several of train and of validation; a second test set by its name.

    names: of what is read -> name that may say its split.
    """
    files: dict[str, list[str]] = {split: [] for split in ("train", *HELD_OUT)}
    for read, name in names.items():
        split = split_in_name(name) or "train"
        if split == "test" and files["test"]:
            split = re.sub(r"[^\w]+", "_", plain_name(name).replace("*", "")).strip("_")
        files.setdefault(split, []).append(read)
    return {split: found for split, found in files.items() if found}


def left_out(names: Sequence[str]) -> list[str]:
    """Return a sentence about files that are not read; none without one."""
    count = counted(len(names), "file", "files")
    return [f"{count} left out: {named(names)}"] if names else []


def held_out(
    places: Collection[float],
    splits: Iterable[str],
    *,
    usual: float,
    least: int = 2,
    what: str = "items",
) -> dict[str, Setting]:
    """Return the setting `NAME_share` of a source for each held-out split, and its number of items.

    The share is `usual`, or a larger one where that would leave a split with fewer than `least`
    items. places: of all items, as `hash_position` returns them. splits: in the order of the
    source; none for data that have splits of their own. what: name of the items. Raises UserError
    where a split stays empty with the largest share too.
    """
    names = list(splits)
    counts: Counter[str] = Counter()
    for share in (share for share in SHARES if share >= usual and names):
        counts = Counter(split_at(place, dict.fromkeys(names, share)) for place in places)
        if min(counts[name] for name in names) >= least and counts["train"]:
            break
    if empty := [name for name in ("train", *names) if names and not counts[name]]:
        different = len(set(places))
        equal = f", of which {different} differ," if different < len(places) else ""
        raise UserError(
            f"{len(places)} {what}{equal} are too few: the hash of their content, which puts equal "
            f"ones into one split, leaves none for {' and '.join(empty)}; expected more that differ"
        )
    return {f"{name}_share": Setting(share, f"{counts[name]:,} {what}") for name in names}


def span(values: Sequence[float], unit: str = "") -> str:
    """Return smallest, median and largest value: `3 to 40 tokens (median 12)`."""
    least, most, middle = min(values), max(values), statistics.median(values)
    if least == most:
        return f"{least:,.0f}{unit}"
    return f"{least:,.0f} to {most:,.0f}{unit} (median {middle:,.0f})"


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
