"""MIDI files parsed once: their notes kept by content, so that nothing stale is ever served.

A performance takes half a second to parse and a millisecond to read back. An entry's name is the
hash of the file's bytes, and its folder the hash of the code that parses (this program's and its
two libraries'): a renamed file is found again, an edited file or a changed parser never is. Entries
may be deleted at any time.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import inspect
import io
import os
from pathlib import Path

import numpy as np

import triptych
from triptych.domains.music import events, midi, tracks
from triptych.domains.music.events import Notes, encode_notes, reference_notes
from triptych.domains.music.midi import parse_midi
from triptych.errors import UserError
from triptych.training.files import write_whole

AUTO = "auto"
"""Stands for the user's cache folder."""

# Exact: seconds stay float64, for stretching and rounding come after. 18 bytes a note.
_STORED = {"pitch": np.uint8, "onset": np.float64, "release": np.float64, "velocity": np.uint8}


class NotesCache:
    """Notes of MIDI files, out of a folder where they are there, and into it where they are not.

    folder: "auto" for triptych/midi in the user's cache folder ($XDG_CACHE_HOME or ~/.cache); None
    parses every file anew. A damaged entry is parsed again and replaced. A folder that cannot be
    written is no error: `sentence` says so.
    """

    def __init__(self, folder: str | Path | None = AUTO) -> None:
        if folder == AUTO:
            self.folder = user_folder()
        else:
            self.folder = None if folder is None else Path(folder).expanduser()
        self.found = 0
        """Files whose notes came out of the folder."""
        self.parsed = 0
        """Files that were parsed without error."""
        self._refused = ""

    def notes(self, content: bytes, *, name: str) -> Notes:
        """Notes of a file's bytes, as `reference_notes` gives them; empty for drums alone.

        Raises UserError for a file that cannot be read, ValueError for one that is too long to be
        written as events, both each time anew: only whole pieces are kept.
        """
        path = self._path(content)
        notes = _read(path) if path is not None else None
        if notes is not None:
            self.found += 1
            return notes
        notes = reference_notes(parse_midi(content, name=name))
        encode_notes(notes)  # too long a piece shows here, not in the middle of a run
        self.parsed += 1
        if path is not None and not self._refused:
            self._keep(notes, path)
        return notes

    def sentence(self) -> str:
        """How many files came from where; empty where there were none, or no folder is used."""
        if self.folder is None or not self.found + self.parsed:
            return ""
        text = f"{self.found:,} of {self.found + self.parsed:,} MIDI files came parsed from "
        text += f"{self.folder} (data.cache)"
        return text + (f", which cannot be added to: {self._refused}" if self._refused else "")

    def _path(self, content: bytes) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / parser_version() / f"{hashlib.sha256(content).hexdigest()}.npz"

    def _keep(self, notes: Notes, path: Path) -> None:
        buffer = io.BytesIO()
        # A zip of arrays: it carries checksums, so that a damaged entry shows.
        np.savez(buffer, **{key: getattr(notes, key).astype(kind) for key, kind in _STORED.items()})
        try:
            write_whole(path, buffer.getvalue())
        except UserError as error:
            self._refused = str(error).rstrip(".")


def user_folder() -> Path | None:
    """Where programs of this user keep what they can make again; None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # Relative paths are invalid there by the XDG specification.
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "triptych" / "midi"


@functools.cache
def parser_version() -> str:
    """Hash of all that decides what notes a file's bytes become, 16 letters.

    The code itself is hashed, since a number to be raised by hand would be forgotten one day.
    """
    try:
        parts = [inspect.getsource(module) for module in (midi, tracks, events)]
    except OSError:  # installed without its source
        parts = [triptych.__version__]
    parts += [f"{name} {importlib.metadata.version(name)}" for name in ("mido", "pretty_midi")]
    parts.append(repr(sorted((key, np.dtype(kind).str) for key, kind in _STORED.items())))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _read(path: Path) -> Notes | None:
    """The notes of an entry; None where there is none, or none that is whole."""
    try:
        with np.load(path, allow_pickle=False) as entry:
            arrays = {key: entry[key] for key in _STORED}
    except Exception:  # damaged bytes raise a dozen types, out of numpy, zipfile and struct
        return None
    rows = {array.shape for array in arrays.values()}
    if len(rows) != 1 or any(arrays[key].dtype != kind for key, kind in _STORED.items()):
        return None
    return Notes(
        arrays["pitch"].astype(np.int64),
        arrays["onset"],
        arrays["release"],
        arrays["velocity"].astype(np.int64),
    )
