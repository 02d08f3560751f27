"""Checkpoints: written whole or not at all, and read with a clear word where they are not."""

from __future__ import annotations

import os
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.checkpoint_io import CheckpointIO

from triptych.errors import UserError
from triptych.pretrained import WEIGHTS
from triptych.training.exceptions import SaveFailed
from triptych.training.files import allow_reading
from triptych.training.metadata import FORMAT
from triptych.training.pretrained import read_pretrained

ZIP_START = b"PK\x03\x04"
TEMPORARY = ".unfinished"


class AtomicCheckpointIO(CheckpointIO):
    """Write to a temporary file in the same folder, fsync it, rename it, fsync the folder.

    A process killed at any moment leaves the former file or the new one, never a part. Another
    folder for the temporary file would not do: a rename is atomic inside one file system only.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Write the checkpoint; SaveFailed (exit code 1) where the file system refuses."""
        target = Path(path)
        unfinished: Path | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(
                prefix=f".{target.name}.", suffix=TEMPORARY, dir=target.parent
            )
            unfinished = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            allow_reading(unfinished)
            os.replace(unfinished, target)
            unfinished = None
            sync_folder(target.parent)
        except (OSError, RuntimeError) as error:
            # torch reports a full disk as RuntimeError from its zip writer.
            raise SaveFailed(
                f"The checkpoint {target} could not be written ({error}); an earlier file of that "
                "name is untouched."
            ) from error
        finally:
            if unfinished is not None:
                unfinished.unlink(missing_ok=True)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read with `read_checkpoint`, so a resumed run too never unpickles foreign code."""
        return read_checkpoint(path)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete the file where it is there."""
        Path(path).unlink(missing_ok=True)


def duplicate(source: Path, target: Path) -> None:
    """Give a finished checkpoint a second name, atomically; a copy where links cannot be made."""
    unfinished = target.parent / f".{target.name}.{os.getpid()}{TEMPORARY}"
    unfinished.unlink(missing_ok=True)
    try:
        try:
            os.link(source, unfinished)
        except OSError:
            with source.open("rb") as reader, unfinished.open("wb") as writer:
                while piece := reader.read(1 << 22):
                    writer.write(piece)
                writer.flush()
                os.fsync(writer.fileno())
        os.replace(unfinished, target)
        sync_folder(target.parent)
    except OSError as error:
        raise SaveFailed(
            f"The checkpoint {target} could not be written ({error}); an earlier file of that name "
            "is untouched."
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Open a checkpoint on the CPU with weights_only=True and return its content.

    content["triptych"] holds format, domain, config, vocabulary, versions, commit, seed, step and
    metrics; content["state_dict"] the weights. Tensors stay on disk until they are used (mmap).
    A `.safetensors` file is a model that comes with the package, see `triptych.pretrained`.
    Raises UserError where the file is missing, a folder, no checkpoint, cut off, written by
    something else, or of a newer format.
    """
    file = Path(path)
    expected = "expected a file such as runs/NAME/checkpoints/best.ckpt from `triptych train`"
    if file.is_dir():
        raise UserError(f"The checkpoint {file} is a folder; {expected}.")
    if not file.is_file():
        raise UserError(f"The checkpoint {file} does not exist; {expected}.")
    try:
        if file.suffix == WEIGHTS:
            return _known_format(read_pretrained(file), file, expected)
        with file.open("rb") as reader:
            start = reader.read(len(ZIP_START))
    except OSError as error:
        raise UserError(f"The checkpoint {file} cannot be read ({error.strerror}).") from error
    if start != ZIP_START:
        found = "is empty" if not start else "is no checkpoint file at all"
        raise UserError(f"The checkpoint {file} {found}; {expected}.")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"The checkpoint {file} holds objects other than weights and plain settings, so "
            f"Triptych did not write it; {expected}."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        size = file.stat().st_size
        raise UserError(
            f"The checkpoint {file} is cut off or damaged ({size:,} bytes do not make a whole "
            f"file); {expected}."
        ) from error
    return _known_format(content, file, expected)


def check_domain(content: dict[str, Any], domain: str, named: str) -> None:
    """Raise UserError where the checkpoint, `named` as the user did, is of another domain."""
    found = content["triptych"]["domain"]
    if found != domain:
        raise UserError(
            f"{named} is of the domain {found}; expected a checkpoint of the domain {domain}"
        )


def _known_format(content: Any, file: Path, expected: str) -> dict[str, Any]:
    header = content.get("triptych") if isinstance(content, dict) else None
    if not isinstance(header, dict) or "format" not in header or "state_dict" not in content:
        raise UserError(
            f"The checkpoint {file} was not written by Triptych (it has no header 'triptych'); "
            f"{expected}."
        )
    if header["format"] > FORMAT:
        raise UserError(
            f"The checkpoint {file} has format {header['format']}, written by Triptych "
            f"{header.get('versions', {}).get('triptych', 'of a newer version')}; this version "
            f"reads formats up to {FORMAT}."
        )
    return content


def check_writable(folder: Path) -> None:
    """Make the folder and write a file in it, or raise UserError saying why that failed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"The folder {folder} cannot be written ({error.strerror}); choose another with "
            "--run.directory."
        ) from error


def remove_unfinished(folder: Path) -> None:
    """Delete what a killed save left behind in the folder of checkpoints."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut, where the file system can fsync folders."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some file systems on a network refuse; the file itself is whole by then.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
