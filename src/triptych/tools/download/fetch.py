"""Download of a data set: each file checked by its hash and never half-written, archives extracted.

pooch asks again after a broken connection, and leaves no file that is not complete.
"""

import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pooch
import requests

import triptych
from triptych.errors import UserError
from triptych.tools.download.catalogue import DataSet, RemoteFile
from triptych.types import Progress

RETRIES = 2
TIMEOUT = 30
"""Seconds without an answer after which a connection is given up."""
CHUNK = 1 << 16
"""Bytes received at a time."""
HEADERS = {"User-Agent": f"triptych/{triptych.__version__}", "Accept-Encoding": "identity"}
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
    total = sum(file.size for file in missing)
    check_room(folder, total)
    progress, before = start(), 0
    for file in missing:
        target = folder / file.name
        if not target.exists():
            address = f"{base_address(data, url)}/{file.name}"
            download(address, target, file, _Received(progress, address, file.size, before, total))
        if file.extracts_to is not None:
            extract(target, folder / file.extracts_to)
        before += file.size
    return [file.name for file in missing]


class _Received:
    """What pooch reports its progress to: shows kilobytes, and refuses a file of another size."""

    def __init__(
        self, progress: Progress, address: str, size: int, before: int, all_files: int
    ) -> None:
        self.progress, self.address, self.size = progress, address, size
        self.before, self.all_files = before, all_files
        self.done = 0

    @property
    def total(self) -> int:
        """Bytes that the server announces, 0 where it announces none."""
        return self.size

    @total.setter
    def total(self, announced: int) -> None:
        if announced not in (0, self.size):
            raise UserError(
                f"{self.address} is a file of {announced:,} bytes; expected {self.size:,}: it is "
                "not the file of the catalogue"
            )
        self.reset()

    def reset(self) -> None:
        """Begin again, as a new attempt does."""
        self.done = 0

    def update(self, count: int) -> None:
        """Note bytes that have arrived; UserError where they are more than the file has."""
        self.done += count
        if self.done >= self.size + 2 * CHUNK:
            raise UserError(f"{self.address} sends more than the expected {self.size:,} bytes")
        shown = self.before + min(self.done, self.size)
        self.progress(shown // 1000, max(1, self.all_files // 1000))

    def close(self) -> None:
        """Do nothing: the display is of all files."""


def download(address: str, target: Path, file: RemoteFile, received: _Received) -> None:
    """Write the file at an address to `target`, which appears when it is complete and correct.

    Raises UserError for an address without the file, a server that cannot be reached, another
    size or hash than the catalogue's, and a disk that cannot be written.
    """
    pooch.get_logger().setLevel("WARNING")
    hashes, addresses = {file.name: f"sha256:{file.sha256}"}, {file.name: address}
    folder = pooch.create(
        target.parent, base_url="", registry=hashes, urls=addresses, retry_if_failed=RETRIES
    )
    from_network = pooch.HTTPDownloader(received, CHUNK, headers=HEADERS, timeout=TIMEOUT)
    try:
        folder.fetch(file.name, downloader=_copy if address.startswith("file://") else from_network)
    except requests.RequestException as error:
        raise UserError(
            f"{address} cannot be fetched: {error}; name another folder of the file with --url, or "
            f"put it at {target} by hand"
        ) from error
    except ValueError as error:  # another hash
        raise UserError(f"{address}: {error}") from error
    except OSError as error:
        raise UserError(f"{address} cannot be copied to {target}: {error}") from error


def _copy(address: str, target: str, folder: Any) -> None:
    """Copy a file of this machine, as a downloader of pooch."""
    shutil.copyfile(url2pathname(urlsplit(address).path), target)


def sha256_of(path: Path) -> str:
    """Return the hash of a file, as hexadecimal digits."""
    digits: str = pooch.file_hash(str(path))
    return digits


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
