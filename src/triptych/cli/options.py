"""What the commands share: flat option parsers, checks of files, devices and progress."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from triptych import pretrained
from triptych.config.schema import build, parser_for
from triptych.errors import UserError
from triptych.training.files import write_whole

Options = TypeVar("Options")


def read_options(
    cls: type[Options],
    arguments: Sequence[str],
    *,
    prog: str,
    description: str,
    flags: Mapping[str, str] | None = None,
) -> tuple[Options, set[str]]:
    """The options dataclass `cls` from a command line, and the names of the flags that were given.

    flags: name -> help of options that take no value.
    Raises UserError for an unknown option, a wrong type, an impossible or a missing value.
    """
    parser = parser_for(cls, prog=prog, description=description, config=False)
    for name, help_text in (flags or {}).items():
        parser.add_argument(f"--{name}", action="store_true", help=help_text)
    values, place = parser.parse_settings(arguments)
    options = build(cls, values, place=place)
    return options, {name for name in flags or {} if values[name]}


def check_checkpoint(path: str, option: str = "checkpoint") -> Path:
    """The path that the option names, also as `pretrained:NAME`; UserError where it is not there.

    Only what is typed so is a name: `./pretrained:NAME` is a file of the user's own.
    """
    if path.startswith(pretrained.PREFIX):
        return pretrained.find(path)
    meant = path if path in pretrained.names() else "NAME"
    expected = f"a file such as runs/NAME/checkpoints/best.ckpt, or {pretrained.PREFIX}{meant}"
    return check_file(path, option, expected=expected)


def check_file(path: str, option: str, *, expected: str) -> Path:
    """The path of a file that an option names; raises UserError where there is none."""
    file = Path(path)
    if not path:
        found = "is empty"
    elif os.path.isdir(file):
        found = f"{path} is a folder"
    elif not os.path.exists(file):
        found = f"{path} does not exist"
    else:
        return file
    raise UserError(f"--{option} {found}; expected {expected}")


def why_unwritable(folder: Path) -> str | None:
    """Why no file could be made in a folder, which may be missing still; None where one could.

    Nothing is left behind, so that a command that fails after this has touched nothing.
    """
    there = folder.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        return f"{there} is a file"
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return error.strerror


def check_output(folder: str, names: Sequence[str], *, overwrite: bool) -> Path:
    """The output folder, found to be writable; it is made later, when there is something in hand.

    Files of other names in it are left alone. Raises UserError where one of `names` is there
    already and `overwrite` was not asked for, or where nothing can be written.
    """
    out = Path(folder)
    if not folder:
        raise UserError("--out is empty; expected the name of a folder")
    if (why := why_unwritable(out)) is not None:
        raise UserError(f"cannot write into --out {folder}: {why}; expected a folder to write into")
    clashes = [name for name in names if (out / name).exists()]
    if clashes and not overwrite:
        more = f" and {len(clashes) - 1} more" if len(clashes) > 1 else ""
        raise UserError(
            f"--out {folder} already holds {clashes[0]}{more}: choose another folder, "
            "or add --overwrite to replace them"
        )
    return out


def check_writable(path: str, option: str) -> Path:
    """The path of a file to be written; raises UserError where its folder cannot take it."""
    file = Path(path)
    if not path or file.is_dir():
        found = f"{path} is a folder" if path else "is empty"
        raise UserError(f"--{option} {found}; expected the name of a file to write")
    if is_device(file):
        return file
    if (why := why_unwritable(file.parent)) is not None:
        raise UserError(f"cannot write --{option} {path}: {why}; expected a file in a folder")
    return file


def is_device(file: Path) -> bool:
    """Whether it is a pipe or a device, which takes what is written as it comes."""
    return file.exists() and not file.is_file()


def check_new_file(path: str, option: str, *, overwrite: bool) -> Path:
    """As `check_writable`, and raises UserError too where a file is there that should be kept."""
    file = check_writable(path, option)
    if file.exists() and not overwrite and not is_device(file):
        raise UserError(
            f"--{option} {path} is there already: choose another name, or add --overwrite to "
            "replace it"
        )
    return file


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all; raises UserError where it cannot be written."""
    text = json.dumps(content, ensure_ascii=False, indent=2, default=float)
    write_whole(path, f"{text}\n".encode())


def at_least_one(options: object, *names: str) -> None:
    """Raise ValueError where one of these options is a number below 1; None is allowed."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def open_model(
    path: Path, *, domain: str, device: str, option: str = "checkpoint"
) -> tuple[Any, dict[str, Any]]:
    """The model of a checkpoint of this domain, on a device, and what the checkpoint says of it.

    option: which one named the file.

    Raises UserError for any other file, and for a device that is not there.
    """
    from triptych.training.checkpoint import check_domain, read_checkpoint
    from triptych.training.devices import device_named

    target = device_named(device)
    content = read_checkpoint(path)
    check_domain(content, domain, f"--{option} {path}")
    inference = importlib.import_module(f"triptych.domains.{domain}.inference")
    return inference.load(content, device=str(target)), content["triptych"]


def counted(number: int, one: str, many: str) -> str:
    """A number and its noun: `1 picture`, `2 pictures`."""
    return f"{number} {one if number == 1 else many}"


class ProgressOnStderr:
    """A callback (done, total) that keeps one line on standard error up to date.

    On a terminal the line is rewritten; in a log a new one comes each 30 s at most. at_most: the
    work may end before its total, and `end` tells then where it did.
    """

    def __init__(self, what: str, *, every: float = 0.5, at_most: bool = False) -> None:
        self.what, self.at_most = what, at_most
        self.terminal = sys.stderr.isatty()
        self.every = every if self.terminal else 30.0
        self.started = time.monotonic()
        self.last = 0.0 if self.terminal else self.started
        self.done = 0
        self.finished = False

    def __call__(self, done: int, total: int) -> None:
        """Tell that so much is done, where it is time to."""
        now = time.monotonic()
        self.done, self.finished = done, 0 < total <= done
        if not self.finished and now - self.last < self.every:
            return
        self.last = now
        seconds = now - self.started
        most = "at most " if self.at_most and not self.finished else ""
        of_total = f" of {most}{total}" if total else ""
        left = seconds / done * (total - done) if 0 < done < total else None
        took = f", {seconds:.1f} s" if self.finished else ""
        self._show(f"{done}{of_total}{took}" + (f", {most}{left:.0f} s left" if left else ""))

    def end(self) -> None:
        """The work has ended, perhaps before its total."""
        if self.done and not self.finished:
            self.finished = True
            self._show(f"{self.done}, {time.monotonic() - self.started:.1f} s")

    def _show(self, text: str) -> None:
        start = "\r\033[K" if self.terminal else ""
        end = "\n" if self.finished or not self.terminal else ""
        print(f"{start}{self.what}: {text}", end=end, file=sys.stderr, flush=True)
