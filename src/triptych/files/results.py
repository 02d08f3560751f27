"""Input and result files: checks before the work, atomic writes after it.

A reader of a file sees its former content or the new one, never a part.
"""

import io
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from triptych.errors import UserError


class _RawFile(io.FileIO):
    """A file that remembers why it could not be written, which torch.save does not say."""

    failure: OSError | None = None

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self.failure = error
            raise


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file, in a folder that is made, which replaces `path` when the block ends.

    The content is on disk before the rename. An exception leaves `path` unchanged. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename is atomic only inside one file system.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    try:
        with io.BufferedWriter(raw := _RawFile(handle, "wb")) as file:
            try:
                yield cast("BinaryIO", file)
            except Exception as error:
                if raw.failure is not None:
                    raise raw.failure from error
                raise
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes private files
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if os.name == "posix":  # write the rename to disk
        descriptor = os.open(path.parent, os.O_RDONLY)
        with suppress(OSError):  # some network file systems refuse
            os.fsync(descriptor)
        os.close(descriptor)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `path` when the block ends without an exception."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY))
    old = new.with_name(f"{new.name}.old")
    try:
        yield new
        new.chmod(0o777 & ~_umask())  # mkdtemp makes private folders
        for file in filter(Path.is_file, new.rglob("*")):
            file.chmod(0o666 & ~_umask())
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        if path.exists() and any(path.iterdir()):
            path.rename(old)
        new.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(new, ignore_errors=True)
        raise


@contextmanager
def new_folder(out: str, *, files: Collection[str] = (), overwrite: bool = False) -> Iterator[Path]:
    """Yield an `atomic_folder` for `out`; UserError where it holds or cannot hold anything.

    files: names of those that `out` may hold, as of an earlier result; they go where overwrite.
    """
    path = Path(os.path.realpath(out))  # a link stays a link
    if (why := why_unwritable(path)) is not None:
        raise UserError(f"cannot write --out {out}: {why}; expected a folder to create")
    for entry in sorted(path.iterdir()) if path.exists() else ():
        replaceable = entry.name in files and not entry.is_dir()
        if not (overwrite and replaceable):
            more = ", or --overwrite to replace an earlier one" if replaceable else ""
            raise UserError(f"--out {out} already holds {entry.name}; expected a new folder{more}")
    try:
        with atomic_folder(path) as folder:
            yield folder
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error}") from error


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def write_atomically(path: str | Path, content: bytes) -> Path:
    """Write a file atomically, a pipe or device directly; UserError where it cannot be written."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_bytes(content)
        else:
            with atomic_file(Path(os.path.realpath(path))) as file:  # a link stays a link
                file.write(content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def why_unwritable(folder: Path) -> str | None:
    """Return why no file can be made in a folder, which may be missing; leaves nothing behind."""
    places = (folder.absolute(), *folder.absolute().parents)
    existing = next(filter(os.path.lexists, places))
    if not existing.is_dir():
        return f"{existing} is a file"
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0")  # fails on a full disk
            return None
    except OSError as error:
        return error.strerror


def remove_unfinished(folder: Path) -> None:
    """Delete temporary files of killed processes from the folder."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def check_input_file(path: str, option: str, *, expected: str) -> Path:
    """Return the path of a file that an option names; UserError where there is none."""
    file = Path(path)
    if path and os.path.exists(file) and not file.is_dir():
        return file
    reason = f"{path} {'is a folder' if os.path.isdir(file) else 'does not exist'}"
    raise UserError(f"--{option} {reason if path else 'is empty'}; expected {expected}")


def check_result_file(path: str, option: str, *, replaces: bool = True) -> Path:
    """Return the path of a file to be written; UserError where it cannot, or must be kept."""
    file = Path(path)
    if not path or file.is_dir():
        reason = f"{path} is a folder" if path else "is empty"
        raise UserError(f"--{option} {reason}; expected the name of a file to write")
    if file.exists() and not file.is_file():  # a pipe or a device keeps nothing
        return file
    if (why := why_unwritable(file.parent)) is not None:
        raise UserError(f"cannot write --{option} {path}: {why}; expected a file in a folder")
    if file.exists() and not replaces:
        raise UserError(
            f"--{option} {path} exists: choose another name, or add --overwrite to replace it"
        )
    return file


class OutputFolder:
    """Folder of result files, created with the first one; UserError where it cannot be written."""

    def __init__(self, folder: str, *, overwrite: bool) -> None:
        if not folder:
            raise UserError("--out is empty; expected the name of a folder")
        self.path = Path(folder)
        self.overwrite = overwrite
        if (why := why_unwritable(self.path)) is not None:
            raise UserError(f"cannot write into --out {folder}: {why}; expected a folder")

    def __str__(self) -> str:
        return str(self.path)

    def check_free(self, names: Sequence[str]) -> None:
        """Raise UserError where one of these files exists and --overwrite was not given."""
        existing = [name for name in names if (self.path / name).exists()]
        if existing and not self.overwrite:
            more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
            raise UserError(
                f"--out {self.path} already holds {existing[0]}{more}: choose another folder, "
                "or add --overwrite to replace them"
            )

    def write(self, name: str, content: bytes) -> Path:
        """Write a file atomically and return its path."""
        return write_atomically(self.path / name, content)


def json_bytes(content: Any) -> bytes:
    """Return indented JSON in UTF-8; numbers of other libraries become floats."""
    return f"{json.dumps(content, ensure_ascii=False, indent=2, default=float)}\n".encode()


TEMPORARY = ".unfinished"
"""Suffix of temporary files; their names begin with a dot."""
