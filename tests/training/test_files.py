"""Files of results: whole or not there at all, and readable as others are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch

from triptych.errors import SaveFailed, UserError
from triptych.files.results import write_atomically
from triptych.training.lightning_fixes import AtomicCheckpointIO


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = write_atomically(tmp_path / "a.png", b"old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(UserError, match=r"a\.png cannot be written: No space left on device$"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(SaveFailed, match=r"a\.ckpt could not be written: File too large;"):
            AtomicCheckpointIO().save_checkpoint({"x": torch.zeros(100_000)}, tmp_path / "a.ckpt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", b"new")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_folders_are_made_and_others_may_read(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = write_atomically(str(tmp_path / "new" / "er" / "a"), b"x" * 1000)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"x" * 1000
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_link_stays_a_link_to_the_new_content(tmp_path: Path) -> None:
    target, link = tmp_path / "there" / "score.json", tmp_path / "score.json"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link.symlink_to(target)
    assert write_atomically(link, b"new") == link
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, b"new")
        assert os.read(reader, 10) == b"new"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
