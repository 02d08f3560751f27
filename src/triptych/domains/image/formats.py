"""File formats: idx (MNIST), pickled batches (CIFAR-10) and image files, all to 8-bit integers.

Image files are decoded by Pillow: torchvision.io reads no BMP, TIFF and PPM, and has no crop and
no transparency over white.
"""

from __future__ import annotations

import gzip
import importlib
import io
import lzma
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from triptych.errors import UserError

IDX_UINT8 = 0x08
OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}
EXIF_ORIENTATION = 0x0112
"""Exif tag of the camera's orientation."""
EXIF_TRANSPOSED = (5, 6, 7, 8)
"""Values of the tag that swap height and width."""


def find_packed(folder: Path, name: str) -> Path | None:
    """Return the file `name` of a folder, or its `.gz` or `.xz` form; None where there is none."""
    for suffix in OPENERS:
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    return None


def open_packed(path: Path) -> BinaryIO:
    """Open a plain, `.gz` or `.xz` file for reading of its unpacked bytes."""
    file: BinaryIO = OPENERS.get(path.suffix, open)(path, "rb")
    return file


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, packed or not: uint8 with `dimensions` axes.

    The format: two zero bytes, the type (8 is uint8), the number of axes, their sizes as big-endian
    32-bit integers, the values. Raises UserError for a file of another type or length.
    """
    try:
        with open_packed(path) as file:
            content = file.read()
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, IDX_UINT8, dimensions]):
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


class ArraysOnlyUnpickler(pickle.Unpickler):
    """An unpickler of numbers, strings, lists, dicts and NumPy arrays, and of nothing else.

    A pickle may name any callable of any module. Only the three names that an array needs are
    looked up, so that a foreign file cannot run code.
    """

    ALLOWED = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image needs")
        if name == "_reconstruct":  # NumPy 2 moved the module
            try:
                return importlib.import_module("numpy._core.multiarray")._reconstruct
            except ModuleNotFoundError:
                return importlib.import_module("numpy.core.multiarray")._reconstruct
        return getattr(np, name)


def read_pickle(path: Path) -> dict[Any, Any]:
    """Read a pickled dict of plain values and NumPy arrays with `ArraysOnlyUnpickler`.

    Raises UserError for a damaged file, for content of other types, and for anything but a dict.
    """
    try:
        with open_packed(path) as file:
            content = ArraysOnlyUnpickler(file, encoding="bytes").load()
    # A damaged pickle or xz file raises nearly any exception.
    except Exception as error:
        raise UserError(
            f"{path} is not a readable batch of images: {str(error) or type(error).__name__}"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, expected a dict of arrays")
    return content


def read_cifar_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one CIFAR-10 batch: pixels uint8 [N, 32, 32, 3] and labels int64 [N].

    The file has one row per image: 1,024 red, 1,024 green and 1,024 blue values.
    Raises UserError for a damaged batch and for one of another form.
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
    return planes.transpose(0, 2, 3, 1), np.asarray(labels, dtype=np.int64)  # [N, H, W, C], [N]


class ImageSizeError(ValueError):
    """An image that is not of the expected height and width (pixels)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__(f"{width} wide and {height} high")


def decode_image(
    content: bytes, *, height: int, width: int, channels: int, resize: bool
) -> NDArray[np.uint8]:
    """Decode an image file: uint8 [height, width, channels].

    Applies the camera's orientation, lays transparency over white, and shifts 16-bit grey to 8
    bits. Raises ImageSizeError for another size unless `resize`, and the exceptions of Pillow for
    a damaged file.
    """
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as opened:
        opened.load()  # finds a truncated file
        image: Image.Image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's conversion would clip at 255
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    if (image.height, image.width) != (height, width):
        if not resize:
            raise ImageSizeError(image.height, image.width)
        image = ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.uint8).reshape(height, width, channels)


def check_size(content: bytes, *, height: int, width: int) -> None:
    """Raise ImageSizeError unless an image file has this size, camera's orientation applied.

    Reads the header only, where that suffices. Raises the exceptions of Pillow for a file that it
    cannot open.
    """
    from PIL import Image

    with Image.open(io.BytesIO(content)) as opened:
        found = opened.height, opened.width
        if found == (height, width) and height == width:
            return  # in any orientation; Pillow decodes a whole PNG to find the orientation
        if opened.getexif().get(EXIF_ORIENTATION, 1) in EXIF_TRANSPOSED:
            found = found[::-1]
    if found != (height, width):
        raise ImageSizeError(*found)
