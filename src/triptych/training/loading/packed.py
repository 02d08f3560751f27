"""Packed data: arrays in files of any size, mapped into memory, with a description in JSON.

A file holds the bytes of one array; rows are found by number, as those of data in memory.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych.errors import UserError
from triptych.training.loading.batches import Ragged

DESCRIPTION = "pack.json"


class PackWriter:
    """Writes arrays of any length into a folder, a part at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays: dict[str, dict[str, Any]] = {}

    def append(self, name: str, rows: NDArray[Any]) -> None:
        """Append rows to an array; all have the dtype and the shape [..., *] of the first."""
        about = self._arrays.setdefault(
            name, {"dtype": rows.dtype.str, "shape": [0, *rows.shape[1:]]}
        )
        assert (about["dtype"], about["shape"][1:]) == (rows.dtype.str, list(rows.shape[1:])), name
        about["shape"][0] += len(rows)
        with (self.folder / name).open("ab") as file:
            file.write(np.ascontiguousarray(rows).data)

    def append_ragged(self, name: str, rows: Ragged) -> None:
        """Append rows of different lengths."""
        written = self._arrays.get(f"{name}.values", {"shape": [0]})["shape"][0]
        if f"{name}.offsets" not in self._arrays:
            self.append(f"{name}.offsets", np.zeros(1, dtype=np.int64))
        first = rows.offsets[0]
        self.append(f"{name}.offsets", rows.offsets[1:] - first + written)
        self.append(f"{name}.values", rows.values[first : rows.offsets[-1]])

    def finish(self, about: dict[str, Any]) -> None:
        """Write the description: of JSON types, for `Pack.about`."""
        content = {"about": about, "arrays": self._arrays}
        (self.folder / DESCRIPTION).write_text(json.dumps(content, indent=1), encoding="utf-8")


class Pack:
    """Packed data of a domain; UserError for a folder without a whole pack of it."""

    def __init__(self, folder: str | Path, domain: str) -> None:
        self.folder = Path(folder).expanduser()
        try:
            content = json.loads((self.folder / DESCRIPTION).read_bytes())
            self.about, self._arrays = content["about"], content["arrays"]
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"data.packed {folder} holds no finished pack; expected a folder that `triptych "
                f"pack {domain}` has written"
            ) from error
        if self.about["domain"] != domain:
            raise UserError(f"data.packed {folder} is of the domain {self.about['domain']}")

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str) -> NDArray[Any]:
        """Return an array that is read from its file where it is used."""
        about, path = self._arrays[name], self.folder / name
        shape, dtype = tuple(about["shape"]), np.dtype(about["dtype"])
        expected = int(np.prod(shape)) * dtype.itemsize
        size = path.stat().st_size if path.exists() else 0
        if size != expected:
            raise UserError(f"{path} has {size:,} bytes; expected {expected:,}: pack again")
        if not expected:  # an empty file cannot be mapped
            return np.zeros(shape, dtype)
        return np.memmap(path, dtype, mode="c", shape=shape)  # torch warns of read-only arrays

    def ragged(self, name: str) -> Ragged:
        """Return rows of different lengths."""
        return Ragged(self.array(f"{name}.values"), self.array(f"{name}.offsets"))
