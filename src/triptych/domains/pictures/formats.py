"""File formats: idx (MNIST), pickled batches (CIFAR-10) and image files, all to 8-bit integers.

Image files are decoded by Pillow: torchvision.io reads no BMP, TIFF and PPM, and has no crop and
no transparency over white.
"""

from __future__ import annotations

import gzip
import io
import lzma
import math
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from triptych.errors import UserError

IDX_UINT8 = 0x08
OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def find_plain_or_compressed(folder: Path, name: str) -> Path | None:
    """Return the file `name` of a folder, or its `.gz` or `.xz` form; None where there is none."""
    for suffix in OPENERS:
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    return None


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open a plain, `.gz` or `.xz` file; an error while it is open becomes a UserError."""
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            yield file
    # A damaged pickle or compressed file raises nearly any exception.
    except Exception as error:
        raise UserError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes: uint8 with `dimensions` axes.

    The format: two zero bytes, the type (8 is uint8), the number of axes, their sizes as big-endian
    32-bit integers, the values. Raises UserError for a file of another type or length.
    """
    with reading(path) as file:
        content = file.read()
        if content[:4] != bytes([0, 0, IDX_UINT8, dimensions]):
            raise ValueError(
                f"it begins with {content[:4].hex(' ') or 'nothing'}, expected 00 00 08 "
                f"{dimensions:02x} of unsigned bytes with {dimensions} dimensions"
            )
        sizes = struct.unpack_from(f">{dimensions}I", content, offset=4)
        values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
        if len(values) != math.prod(sizes):
            raise ValueError(
                f"its header announces {math.prod(sizes)} values, the file has {len(values)}"
            )
        return values.reshape(sizes)


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
        return super().find_class(module, name)


def read_cifar_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one CIFAR-10 batch: pixels uint8 [N, 32, 32, 3] and labels int64 [N].

    The file has one row per image: 1,024 red, 1,024 green and 1,024 blue values.
    Raises UserError for a damaged batch and for one of another form.
    """
    with reading(path) as file:
        batch = ArraysOnlyUnpickler(file, encoding="bytes").load()
        rows = batch[b"data"].astype(np.uint8, casting="safe")  # an error for any other type
        planes = rows.reshape(-1, 3, 32, 32)  # [N, C, H, W]
        return planes.transpose(0, 2, 3, 1), np.array(batch[b"labels"], dtype=np.int64)


class ImageSizeError(ValueError):
    """An image that is not of the expected height and width (pixels)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__(f"{width} wide and {height} high")


def decode_image(
    content: bytes, height: int, width: int, channels: int, *, resize: bool
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
