"""Files of a user's data: which ones a folder has, their splits, and which cannot be used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Generic, TypeVar

from triptych.errors import UserError
from triptych.files.reading import read_in_order

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
SPLIT_WORDS = {
    "train": "train", "training": "train", "val": "validation", "valid": "validation",
    "validation": "validation", "dev": "validation", "test": "test",
}  # fmt: skip
"""Word for a split in names -> split."""


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
        reason = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"--data {folder} {reason}; expected a folder of {what}")
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


def split_in_name(name: str) -> str:
    """Return the split that a word of a file's name says, such as `test_2016.en`; else train."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), "train")
