"""Download of a data set: each file checked by its hash and never half-written, archives extracted.

pooch asks again after a broken connection, and leaves no file that is not complete.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pooch
import requests
from tqdm import tqdm

import triptych
from triptych.errors import UserError
from triptych.tools.download.catalogue import DataSet, RemoteFile

RETRIES = 2
TIMEOUT = 30
"""Seconds without an answer after which a connection is given up."""
CHUNK = 1 << 16
"""Bytes received at a time."""
HEADERS = {"User-Agent": f"triptych/{triptych.__version__}", "Accept-Encoding": "identity"}
MIRROR = "TRIPTYCH_DATA_MIRROR"
"""Environment variable: address of a folder with one folder for each data set."""


def base_address(data: DataSet, url: str | None) -> str:
    """Return the address of the folder that holds the files: given, of the mirror, or its own."""
    if url is not None:
        return url.rstrip("/")
    mirror = os.environ.get(MIRROR)
    return f"{mirror.rstrip('/')}/{data.name}" if mirror else data.address


def fetch(data: DataSet, folder: Path, *, url: str | None = None) -> list[str]:
    """Bring the files of a data set into a folder; return the names of those downloaded.

    Complete files are left alone. url: address of the folder of the files, None for the usual one.
    Raises UserError as `download` does, for a wrong file in the folder, and for an archive that
    cannot be extracted.
    """
    missing = [file for file in data.files if not is_there(folder, file)]
    for file in missing:
        target = folder / file.name
        if not target.exists():
            address = f"{base_address(data, url)}/{file.name}"
            download(address, target, file)
        if file.extracts_to is not None:
            extract(target, folder / file.extracts_to)
    return [file.name for file in missing]


def download(address: str, target: Path, file: RemoteFile) -> None:
    """Write the file at an address to `target`, which appears when it is complete and correct.

    A terminal shows how much has arrived. Raises UserError for an address without the file, a
    server that cannot be reached, another hash than the catalogue's, and a disk that cannot be
    written.
    """
    pooch.get_logger().setLevel("WARNING")
    hashes, addresses = {file.name: f"sha256:{file.sha256}"}, {file.name: address}
    folder = pooch.create(
        target.parent, base_url="", registry=hashes, urls=addresses, retry_if_failed=RETRIES
    )

    def from_network(url: str, target: str, folder: Any) -> None:
        shown = tqdm(desc=file.name, total=file.size, unit="B", unit_scale=True, disable=None)
        network = pooch.HTTPDownloader(shown, CHUNK, headers=HEADERS, timeout=TIMEOUT)
        network(url, target, folder)

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


def is_there(folder: Path, file: RemoteFile) -> bool:
    """Return whether a file is in the folder, or what its archive holds.

    Raises UserError for a file of this name with another content, which is not replaced.
    """
    if file.extracts_to is not None and (folder / file.extracts_to).is_dir():
        return True
    path = folder / file.name
    if not path.exists():
        return False
    if not path.is_file() or pooch.file_hash(str(path)) != file.sha256:
        raise UserError(
            f"{path} exists and is not the file of the catalogue (sha256 {file.sha256}); move it "
            "away, or choose another folder with --out"
        )
    return file.extracts_to is None  # an archive that is not extracted yet


def extract(archive: Path, folder: Path) -> None:
    """Replace an archive by the folder that it holds, which appears when it is complete.

    Raises UserError where it cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            # The filter of tar files: no link to outside of the folder.
            shutil.unpack_archive(
                archive, temporary, filter=None if archive.suffix == ".zip" else "data"
            )
            os.replace(Path(temporary) / folder.name, folder)
    except OSError as error:
        raise UserError(f"{archive} cannot be extracted into {folder}: {error}") from error
    archive.unlink()
