"""Download of one file: resumed where it stopped, checked by its hash, never half-written.

Libraries were looked at first: pooch and `torch.hub.download_url_to_file` begin again after an
interruption.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import triptych
from triptych.errors import UserError
from triptych.tools.download.catalogue import RemoteFile

PART = ".part"
"""Suffix of a file that is not complete yet."""
CHUNK = 1 << 16
"""Bytes received at a time."""
TIMEOUT = 30.0
"""Seconds without an answer after which a connection is given up."""
PAUSES = (1.0, 4.0)
"""Seconds before each new attempt; they are counted anew whenever data have arrived."""
SCHEMES = ("http://", "https://", "file://")


class _BrokenAttemptError(Exception):
    """End of an attempt that another one may mend, with its reason."""


def download(
    address: str, target: Path, file: RemoteFile, received: Callable[[int], object]
) -> None:
    """Write the file at an address to `target`, which appears when it is complete and correct.

    What an interrupted call has received stays in `target` + PART, and the next call asks the
    server for the rest. received: called with the number of bytes that are there so far.
    Raises UserError for an address without the file, a server that cannot be reached, another
    size or hash than the catalogue's, and a disk that cannot be written.
    """
    try:
        urllib.parse.urlsplit(address)  # ValueError for one such as http://[
    except ValueError as error:
        raise UserError(f"{address} is no address: {error}") from error
    if not address.startswith(SCHEMES):
        raise UserError(f"{address} is no address; expected one that begins with https://")
    part, failures = part_of(target), 0
    with _disk(part):
        target.parent.mkdir(parents=True, exist_ok=True)
    while True:
        before = size_of(part)
        try:
            _receive(address, part, file, received)
            break
        except _BrokenAttemptError as error:
            failures = 0 if size_of(part) > before else failures + 1
            if failures > len(PAUSES):
                raise UserError(_given_up(address, target, str(error))) from error
            time.sleep(PAUSES[max(0, failures - 1)])
    with _disk(target):
        os.replace(part, target)


def sha256_of(path: Path) -> str:
    """Return the hash of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _receive(address: str, part: Path, file: RemoteFile, received: Callable[[int], object]) -> None:
    """Complete the part file in one attempt; UserError where no other attempt can help."""
    start = size_of(part)
    if start > file.size:  # of another version of the file
        start = 0
    received(start)
    if start < file.size:
        with _answer(address, start, part) as answer:
            start = _first_byte(answer, start)
            announced = answer.headers.get("Content-Length", "")
            if announced.isdecimal() and start + int(announced) != file.size:
                raise UserError(
                    f"{address} is a file of {start + int(announced):,} bytes; expected "
                    f"{file.size:,}: it is not the file of the catalogue"
                )
            _copy(answer, part, file, start, received, address)
    if (digest := sha256_of(part)) != file.sha256:
        part.unlink()
        if start:  # the beginning may be of another version or damaged
            raise _BrokenAttemptError(f"its sha256 is {digest}, expected {file.sha256}")
        raise UserError(
            f"{address} has the sha256 {digest}, expected {file.sha256}: it is damaged or another "
            "version, and was deleted"
        )


def _copy(
    answer: Any,
    part: Path,
    file: RemoteFile,
    start: int,
    received: Callable[[int], object],
    address: str,
) -> None:
    """Append the content of an answer to the part file, which keeps its first `start` bytes."""
    with _disk(part):
        stream = part.open("r+b" if start else "wb")
    with stream:
        stream.seek(start)
        done = start
        while chunk := _next(answer):
            done += len(chunk)
            if done > file.size:
                raise UserError(f"{address} sends more than the expected {file.size:,} bytes")
            with _disk(part):
                stream.write(chunk)
                stream.flush()
            received(done)
        with _disk(part):
            stream.truncate()
            os.fsync(stream.fileno())
    if done < file.size:
        raise _BrokenAttemptError(f"the connection ended after {done:,} of {file.size:,} bytes")


@contextmanager
def _answer(address: str, start: int, part: Path) -> Iterator[Any]:
    """Open an address from a byte on; _BrokenAttemptError where it may help to try again.

    A part file is deleted if the server refuses to send the bytes after it.
    """
    headers = {"User-Agent": f"triptych/{triptych.__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        what = f"the server answers {error.code} {error.reason}"
        if start and error.code == 416:  # the range is beyond the file, or not allowed
            part.unlink()
            raise _BrokenAttemptError(what) from error
        if error.code == 429 or error.code >= 500:
            raise _BrokenAttemptError(what) from error
        raise UserError(
            f"{address}: {what}; the file may have moved: name another folder of it with --url"
        ) from error
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise _BrokenAttemptError(str(reason) or type(reason).__name__) from error


def _next(answer: Any) -> bytes:
    """Return the next bytes of an answer; empty at its end, also at an early one."""
    try:
        chunk: bytes = answer.read(CHUNK)
        return chunk
    except http.client.IncompleteRead as error:
        return error.partial


def _first_byte(answer: Any, asked: int) -> int:
    """Return the position at which an answer begins: 0 where the server ignores ranges."""
    if not asked or answer.status != 206:
        return 0
    span = answer.headers.get("Content-Range", "")
    if not span.startswith(f"bytes {asked}-"):
        instead = span or "no range"
        raise _BrokenAttemptError(f"the server answers with {instead} in place of byte {asked}")
    return asked


def part_of(target: Path) -> Path:
    """Return the path that holds a file while it is not complete."""
    return target.with_name(target.name + PART)


def size_of(path: Path) -> int:
    """Return the bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Raise UserError in place of an error of the disk, such as a full one."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error


def _given_up(address: str, target: Path, reason: str) -> str:
    part = part_of(target)
    kept = (
        f"; {part} keeps what has arrived, and the same command continues" if part.exists() else ""
    )
    return (
        f"{address} cannot be fetched: {reason}{kept}; or name another folder of the file with "
        f"--url, or put it at {target} by hand"
    )
