"""Files of a user's folder: all that are not hidden, through links; names in a sentence."""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

LOG = logging.getLogger(__name__)

NAMED = 5
"""Files that a sentence names."""
NOT_OF_THE_USER = {"__macosx", "desktop.ini", "ehthumbs.db", "thumbs.db"}
"""Files and folders, in lower case, that an operating system writes beside a user's."""


def visible_files(folder: str | Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the files at any depth of a folder by name, without hidden ones.

    Links to folders are followed; a folder within itself, by a link, is left out. A link that leads
    nowhere is yielded as a file. A folder that cannot be read is left out, with a warning. above:
    real paths of the folders that this one lies in.
    """
    above = (*above, os.path.realpath(folder))
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            warn_once(f"{folder} cannot be read and is left out: {error.strerror}")
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in NOT_OF_THE_USER:
            continue
        if not entry.is_dir():
            if entry.is_file() or entry.is_symlink():
                yield Path(entry.path)
        elif os.path.realpath(entry.path) not in above:
            yield from visible_files(entry.path, above)


def endings(paths: Sequence[Path]) -> str:
    """Return the names of a few files, or the numbers of files by ending: `9 .heic, 1 .db`."""
    if len(paths) <= NAMED:
        return named([path.name for path in paths])
    counts = Counter(path.suffix.lower() or "without ending" for path in paths)
    return named([f"{number:,} {ending}" for ending, number in counts.most_common()])


def named(names: Sequence[str]) -> str:
    """Return the first names of a list: `a, b, c, d, e, ...`."""
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


@cache
def warn_once(sentence: str) -> None:
    """Log a warning, unless this process has logged the same sentence before."""
    LOG.warning("%s", sentence)
