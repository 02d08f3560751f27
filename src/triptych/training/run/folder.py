"""Folder of a run: never overwritten; contains settings, versions and checkpoints."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from triptych.errors import UserError
from triptych.files.results import why_unwritable, write_atomically
from triptych.training.run.checkpoint import code_commit, versions

Resume: TypeAlias = bool | Literal["auto"]
"""Whether a run goes on from its last checkpoint; auto: if there is one."""


def holds_checkpoint(folder: Path) -> bool:
    """Return whether the folder contains a checkpoint to resume from."""
    return any((folder / "checkpoints" / name).exists() for name in ("last.ckpt", "best.ckpt"))


def is_occupied(folder: Path) -> bool:
    """Return whether the folder exists and contains anything."""
    return folder.is_dir() and any(folder.iterdir())


def check_run_folder(folder: Path, *, resume: Resume) -> bool:
    """Return whether the run goes on from a checkpoint in this folder.

    resume: "auto" goes on where there is a checkpoint and begins otherwise, also in the folder of a
    run that was killed before its first checkpoint. Creates nothing. Raises UserError where the run
    can neither begin nor go on.
    """
    checkpoints = folder / "checkpoints"
    occupied, resumable = is_occupied(folder), holds_checkpoint(folder)
    may_restart = resume == "auto" and (folder / "versions.json").is_file()
    if occupied and not resumable and not may_restart:
        raise UserError(
            f"the folder {folder} is not empty, but {checkpoints} holds no last.ckpt or best.ckpt: "
            "there is nothing to resume, and nothing is overwritten; delete it, or choose another "
            "--run.name"
        )
    if resume is True and not resumable:
        raise UserError(
            f"there is nothing to resume: there is no {checkpoints / 'last.ckpt'} or best.ckpt; "
            "leave --resume out to start the run, or give --resume auto to do whichever fits"
        )
    if resumable and not resume:
        raise UserError(
            f"the folder {folder} holds a run already and nothing is overwritten: give --resume to "
            "go on with it, or another --run.name"
        )
    if (why := why_unwritable(checkpoints)) is not None:
        raise UserError(
            f"the folder {folder} of the run cannot be written: {why}; choose another with "
            "--run.directory"
        )
    return resumable


def write_config(folder: Path, settings: dict[str, Any], step: int) -> None:
    """Write config.yaml; a resumed run with other settings writes config.step-N.yaml instead."""
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    path = folder / "config.yaml"
    if path.is_file():
        if path.read_text(encoding="utf-8") == text:
            return
        path = folder / f"config.step-{step:08d}.yaml"
    path.write_text(text, encoding="utf-8")


def write_versions(folder: Path, start: dict[str, Any]) -> str:
    """Append a start of the run to versions.json and return the id of its wandb run.

    start: what differs between starts, such as step, seed and precision; versions are added.
    """
    path = folder / "versions.json"
    record: dict[str, Any] = {"wandb": secrets.token_hex(4), "starts": []}
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
    record["starts"].append({**start, "commit": code_commit(), **versions()})
    write_atomically(path, f"{json.dumps(record, indent=2)}\n".encode())
    return str(record["wandb"])
