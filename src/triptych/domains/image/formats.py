"""The file formats of the public image sets: idx (MNIST) and pickled batches (CIFAR-10)."""

from __future__ import annotations

import gzip
import importlib
import lzma
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from triptych.errors import UserError

_IDX_UINT8 = 0x08
_OPENERS = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def find_packed(folder: Path, name: str) -> Path | None:
    """The file `name` in folder, or its `.gz` or `.xz` form, whichever is there."""
    for suffix in _OPENERS:
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    return None


def open_packed(path: Path) -> BinaryIO:
    """Open a plain, `.gz` or `.xz` file to read its unpacked bytes."""
    return _OPENERS.get(path.suffix, open)(path, "rb")  # type: ignore[return-value]


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an idx file of unsigned bytes, packed or not: uint8 with so many `dimensions`.

    The format: two zero bytes, the type (8 is uint8), the number of dimensions, their big-endian
    32-bit sizes, the values. Raises UserError where the file is cut, too long or something else.
    """
    try:
        with open_packed(path) as file:
            content = file.read()
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, _IDX_UINT8, dimensions]):
        raise UserError(
            f"{path} is not an idx file of unsigned bytes with {dimensions} dimensions: "
            f"it begins with {content[:4].hex(' ') or 'nothing'}, "
            f"expected 00 00 08 {dimensions:02x}"
        )
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    expected = int(np.prod(sizes, dtype=np.int64))
    if len(content) - header != expected:
        raise UserError(
            f"{path} is cut or damaged: its header announces {expected} values, "
            f"the file has {len(content) - header}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(sizes)


class _ArraysOnly(pickle.Unpickler):
    """A pickle reader that can make numbers, strings, lists, dicts and NumPy arrays, nothing else.

    A pickle may name any callable of any module; here only the three names that an array needs
    are looked up, so a foreign file cannot run code of its own.
    """

    _ALLOWED = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image needs")
        if name == "_reconstruct":  # the module moved in NumPy 2
            try:
                return importlib.import_module("numpy._core.multiarray")._reconstruct
            except ModuleNotFoundError:
                return importlib.import_module("numpy.core.multiarray")._reconstruct
        return getattr(np, name)


def read_pickle(path: Path) -> dict[Any, Any]:
    """Read a pickled dict of plain values and NumPy arrays safely (see `_ArraysOnly`).

    Raises UserError where the file is damaged, asks for anything else, or is no dict.
    """
    try:
        with open_packed(path) as file:
            content = _ArraysOnly(file, encoding="bytes").load()
    # A damaged pickle or xz file raises nearly any exception; each means the same to the user.
    except Exception as error:
        raise UserError(
            f"{path} is not a readable batch of images: {str(error) or type(error).__name__}"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, expected a dict of arrays")
    return content


def read_cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """One CIFAR-10 batch: pixels uint8 [N, 32, 32, 3] and labels int64 [N].

    The file holds a row of 1,024 red, 1,024 green and 1,024 blue values a image.
    Raises UserError where the batch is damaged or of another form.
    """
    batch = read_pickle(path)
    data, labels = batch.get(b"data"), batch.get(b"labels")
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.shape[1:] == (3072,)):
        found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else "nothing"
        raise UserError(f"{path} holds {found} as b'data', expected uint8 rows of 3072 values")
    if not isinstance(labels, list) or len(labels) != len(data):
        found = str(len(labels)) if isinstance(labels, list) else "no"
        raise UserError(f"{path} has {found} labels for {len(data)} images")
    if not all(isinstance(label, int) and 0 <= label < 10 for label in labels):
        raise UserError(f"{path} has labels outside 0 to 9")
    planes = data.reshape(-1, 3, 32, 32)  # [N, C, H, W]
    pixels = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))  # [N, H, W, C]
    return pixels, np.asarray(labels, dtype=np.int64)
