"""Downloads from a server on loopback: interrupted, corrupted, truncated and refused."""

from __future__ import annotations

import errno
import hashlib
import io
import random
import re
import shutil
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from server import Files, serving

from triptych.errors import UserError
from triptych.tools.download.catalogue import DataSet, RemoteFile
from triptych.tools.download.fetch import MIRROR, RETRIES, fetch

CONTENT = random.Random(0).randbytes(300_000)
NAME = "numbers.bin"


def remote(content: bytes, name: str = NAME, extracts_to: str | None = None) -> RemoteFile:
    return RemoteFile(name, len(content), hashlib.sha256(content).hexdigest(), extracts_to)


def data_set(*files: RemoteFile) -> DataSet:
    return DataSet("numbers", "random bytes", "none", "image", "digits", "http://nowhere", files)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts
    monkeypatch.delenv(MIRROR, raising=False)


@pytest.fixture
def files() -> Iterator[Files]:
    with serving(Files({f"/{NAME}": CONTENT})) as served:
        yield served


def get(files: Files, folder: Path) -> list[str]:
    return fetch(data_set(remote(CONTENT)), folder, url=files.address)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def test_a_file_arrives_whole_and_is_not_fetched_again(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert get(files, tmp_path / "new/folder") == [NAME]
    assert (tmp_path / "new/folder" / NAME).read_bytes() == CONTENT
    assert names(tmp_path / "new/folder") == [NAME]
    assert capsys.readouterr().err == "", "no display without a terminal"
    assert get(files, tmp_path / "new/folder") == []
    assert files.asked == [f"/{NAME}"]


def test_a_broken_connection_is_tried_again(files: Files, tmp_path: Path) -> None:
    files.breaks_after = [100_000, 150_000]
    get(files, tmp_path)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert len(files.asked) == 1 + RETRIES


def test_a_terminal_shows_the_name_and_what_has_arrived(
    files: Files,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    get(files, tmp_path)
    shown = capsys.readouterr().err.split("\r")
    assert re.match(rf"{NAME}: 100%.* 300k/300k ", shown[-1])


def test_an_interrupted_command_leaves_nothing(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(count: int) -> None:
        raise KeyboardInterrupt

    shown = SimpleNamespace(update=interrupted)
    monkeypatch.setattr("triptych.tools.download.fetch.tqdm", lambda **_: shown)
    with pytest.raises(KeyboardInterrupt):
        get(files, tmp_path)
    assert names(tmp_path) == []


def test_files_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / NAME).write_bytes(CONTENT)
    here = Files({}, address=(tmp_path / "there").as_uri())
    assert get(here, tmp_path / "in") == [NAME]
    assert (tmp_path / "in" / NAME).read_bytes() == CONTENT
    with pytest.raises(UserError, match=r"cannot be copied to .*nowhere"):
        get(Files({}, address=(tmp_path / "nowhere").as_uri()), tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({f"/{NAME}": CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])}, "SHA256 hash .* does not match"),
        ({}, "cannot be fetched: 404 .*--url"),
    ],
    ids=["another-hash", "404"],
)
def test_what_stays_wrong_is_tried_as_often_and_told_in_one_sentence(
    files: Files, tmp_path: Path, content: dict[str, bytes], says: str
) -> None:
    files.content = content
    with pytest.raises(UserError, match=says) as caught:
        get(files, tmp_path)
    assert files.address in str(caught.value)
    assert len(files.asked) == 1 + RETRIES
    assert names(tmp_path) == []


def test_a_server_that_always_breaks_off_is_given_up(files: Files, tmp_path: Path) -> None:
    files.breaks_after = [1000, 0, 0]
    with pytest.raises(UserError, match=r"cannot be fetched: .*--url"):
        get(files, tmp_path)
    assert names(tmp_path) == []
    assert len(files.asked) == 1 + RETRIES


def test_a_busy_server_is_asked_again(files: Files, tmp_path: Path) -> None:
    files.failures = [503, 429]
    get(files, tmp_path)
    assert (tmp_path / NAME).exists()
    files.content.clear()
    with pytest.raises(UserError, match=r"404 .*Not Found.*--url"):
        get(files, tmp_path / "other")


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = Files({}, address=f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(UserError, match=r"refused.*--url.*by hand"):
        get(closed, tmp_path)

    def unknown(*arguments: Any, **options: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UserError, match="Name or service not known"):
        get(Files({}, address="http://data.invalid"), tmp_path)
    assert names(tmp_path) == []
    for address in ("data.invalid", "http://[::1", "ftp://data.invalid", "https:/"):
        with pytest.raises(UserError, match="cannot be fetched"):
            get(Files({}, address=address), tmp_path)


def test_a_full_disk(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "move", full)
    with pytest.raises(UserError, match=r"cannot be copied to .*No space left"):
        get(files, tmp_path)
    assert len(files.asked) == 1, "another attempt does not help"
    assert names(tmp_path) == []


def test_a_file_of_the_user_is_never_replaced(files: Files, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"mine")
    with pytest.raises(UserError, match="is not the file of the catalogue"):
        get(files, tmp_path)
    assert (tmp_path / NAME).read_bytes() == b"mine"
    assert files.asked == []


def zipped(*members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member in members:
            archive.writestr(member, "content")
    return buffer.getvalue()


def test_an_archive_becomes_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = zipped("pieces/a.mid", "pieces/deep/b.mid", "../outside.mid")
    data = data_set(remote(content, "pieces.zip", extracts_to="pieces"))
    with serving(Files({"/mirror/numbers/pieces.zip": content})) as files:
        monkeypatch.setenv(MIRROR, f"{files.address}/mirror/")
        for expected in (["pieces.zip"], []):
            assert fetch(data, tmp_path / "in") == expected
    assert names(tmp_path) == ["a.mid", "b.mid", "deep", "in", "pieces"]
    assert len(files.asked) == 1


def test_an_archive_that_cannot_be_extracted_stays(tmp_path: Path) -> None:
    content = zipped("other/a.mid")
    data = data_set(remote(content, "pieces.zip", extracts_to="pieces"))
    with (
        serving(Files({"/pieces.zip": content})) as files,
        pytest.raises(UserError, match="extracted"),
    ):
        fetch(data, tmp_path, url=files.address)
    assert names(tmp_path) == ["pieces.zip"]
