"""Folder of an export: checked before the work, complete or absent after it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from triptych.errors import UserError
from triptych.files.results import TEMPORARY, why_unwritable

FILES = frozenset(
    (
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "target_tokenizer.json",
        "generation_config.json",
        "model.bin",
        "shared_vocabulary.json",
        "source_vocabulary.json",
        "target_vocabulary.json",
        "encoder.onnx",
        "step.onnx",
        "onnx.json",
    )
)
"""Names of all files that exports write; a folder with another file is never replaced."""


def check_folder(out: str, *, overwrite: bool) -> Path:
    """Return the path of a folder to write; UserError where it exists with content.

    overwrite: an earlier export may be replaced.
    """
    path = Path(os.path.realpath(out))
    if not out or (path.exists() and not path.is_dir()):
        reason = f"{out} is a file" if out else "is empty"
        raise UserError(f"--out {reason}; expected the name of a folder to write")
    if (why := why_unwritable(path.parent)) is not None:
        raise UserError(f"cannot write --out {out}: {why}; expected a folder that can be created")
    entries = sorted(path.iterdir()) if path.exists() else []
    if entries and not overwrite:
        raise UserError(
            f"--out {out} already holds {entries[0].name}: choose another folder, or add "
            "--overwrite to replace an export"
        )
    if foreign := [entry.name for entry in entries if entry.name not in FILES or entry.is_dir()]:
        raise UserError(
            f"--out {out} holds {foreign[0]}, which no export writes; expected a new folder, or "
            "one with an earlier export alone"
        )
    return path


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `path`, of `check_folder`, when the block ends.

    An exception in the block deletes it and leaves `path` unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename is atomic only inside one file system.
    new = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY))
    old = new.with_name(f"{new.name}.old")
    try:
        yield new
        umask = os.umask(0)
        os.umask(umask)
        new.chmod(0o777 & ~umask)  # mkdtemp makes private folders
        for entry in new.iterdir():
            entry.chmod(0o666 & ~umask)
            with entry.open("rb") as file:
                os.fsync(file.fileno())
        if path.exists() and any(path.iterdir()):
            path.rename(old)
            new.rename(path)
            shutil.rmtree(old)
        else:
            new.rename(path)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(new, ignore_errors=True)
        raise
