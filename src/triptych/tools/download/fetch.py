"""Download of a data set: all its files, with archives extracted."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from triptych.errors import UserError
from triptych.tools.download.catalogue import DataSet, RemoteFile
from triptych.tools.download.download import download, part_of, sha256_of, size_of
from triptych.types import Progress

MIRROR = "TRIPTYCH_DATA_MIRROR"
"""Environment variable: address of a folder with one folder for each data set."""
DAMAGED = (
    *(OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile),
    RuntimeError,  # of zipfile, for an encrypted archive
)
"""Errors of archives that cannot be extracted."""


def base_address(data: DataSet, url: str | None) -> str:
    """Return the address of the folder that holds the files: given, of the mirror, or its own."""
    if url is not None:
        return url.rstrip("/")
    mirror = os.environ.get(MIRROR)
    return f"{mirror.rstrip('/')}/{data.name}" if mirror else data.address


def fetch(
    data: DataSet, folder: Path, *, url: str | None = None, start: Callable[[], Progress]
) -> list[str]:
    """Bring the files of a data set into a folder; return the names of those downloaded.

    Complete files are left alone. url: address of the folder of the files, None for the usual one.
    start: returns a display of kilobytes, called when the first byte is needed.
    Raises UserError as `download` does, for a wrong file in the folder, for an archive that cannot
    be extracted, and where the disk has too little room.
    """
    missing = [file for file in data.files if not is_there(folder, file)]
    if not missing:
        return []
    here = sum(size_of(part_of(folder / file.name)) for file in missing)
    total = sum(file.size for file in missing)
    check_room(folder, total - here)
    progress, done = start(), 0

    def shown(count: int) -> None:
        # What earlier calls have received is left out, so that the rate is that of this call.
        progress(max(0, done + count - here) // 1000, max(1, (total - here) // 1000))

    for file in missing:
        target = folder / file.name
        if not target.exists():
            download(f"{base_address(data, url)}/{file.name}", target, file, shown)
        if file.extracts_to is not None:
            extract(target, folder / file.extracts_to)
        done += file.size
    return [file.name for file in missing]


def is_there(folder: Path, file: RemoteFile) -> bool:
    """Return whether a file is in the folder, or what its archive holds.

    Raises UserError for a file of this name with another content, which is not replaced.
    """
    if file.extracts_to is not None and (folder / file.extracts_to).is_dir():
        return True
    path = folder / file.name
    if not path.exists():
        return False
    if not path.is_file() or sha256_of(path) != file.sha256:
        raise UserError(
            f"{path} exists and is not the file of the catalogue (sha256 {file.sha256}); move it "
            "away, or choose another folder with --out"
        )
    return file.extracts_to is None  # an archive that is not extracted yet


def check_room(folder: Path, needed: int) -> None:
    """Raise UserError where the disk of a folder, which may be missing, has too few bytes left."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise UserError(
            f"{folder} needs {needed / 1e6:,.1f} MB more, and its disk has {free / 1e6:,.1f} MB "
            "left; choose a folder on another disk with --out"
        )


def extract(archive: Path, folder: Path) -> None:
    """Replace an archive by the folder that it holds, which appears when it is complete.

    Raises UserError for a damaged archive and one without this folder.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as zipped:
                    zipped.extractall(temporary)
            else:
                with tarfile.open(archive) as opened:
                    opened.extractall(temporary, filter="data")  # no link and no path outside
            held = Path(temporary) / folder.name
            if held.is_symlink() or not held.is_dir():
                raise NotADirectoryError(f"it holds no folder {folder.name}")
            os.replace(held, folder)
        except DAMAGED as error:
            raise UserError(f"{archive} cannot be extracted into {folder}: {error}") from error
    archive.unlink()
