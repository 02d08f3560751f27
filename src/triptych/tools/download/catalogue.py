"""Catalogue of public data sets: what `triptych data fetch` can download. Imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from triptych.errors import unknown

FILE = Path(__file__).with_name("catalogue.yaml")


@dataclass(frozen=True)
class RemoteFile:
    """File of a data set."""

    name: str
    size: int
    """Bytes."""
    sha256: str
    extracts_to: str | None = None
    """Folder that an archive holds; None for a file that is used as it is."""


@dataclass(frozen=True)
class DataSet:
    """Public data set."""

    name: str
    about: str
    terms: str
    """What its publisher says about its use."""
    domain: str
    config: str
    """Short name of a shipped config that reads it."""
    address: str
    """Folder of the files on the network."""
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def command(self, folder: Path) -> str:
        """Return the command that trains on the data in a folder."""
        return (
            f"triptych train {self.domain} --config {self.config} --data.source.directory {folder}"
        )


def read(file: Path = FILE) -> dict[str, DataSet]:
    """Return all data sets by name."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    sets = {}
    for name, entry in content.items():
        files = [RemoteFile(size=row.pop("bytes"), **row) for row in entry.pop("files")]
        sets[name] = DataSet(name=name, files=tuple(files), **entry)
    return sets


def find(name: str) -> DataSet:
    """Return the data set of a name; UserError where there is none."""
    known = read()
    if name not in known:
        raise unknown("data set to fetch", name, known)
    return known[name]


def of_folder(folder: str) -> DataSet | None:
    """Return the data set that a folder is named after, also a part of it; None for another name.

    `mnist` and `cifar-10-subset` are such names.
    """
    name = Path(folder).name
    return next((s for s in read().values() if f"{name}-".startswith(f"{s.name}-")), None)
