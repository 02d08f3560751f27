"""Pictures and masks that a user gives as files, as levels of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.image.domain import HALVES
from triptych.domains.pictures.formats import ImageSizeError, decode_image
from triptych.domains.pictures.image_folder import find_images
from triptych.domains.pictures.options import GRID
from triptych.domains.pictures.render import to_levels
from triptych.errors import UserError


@dataclass(frozen=True)
class Picture:
    """An image file of a user."""

    path: Path
    pixels: Tensor
    """uint8 [H, W, C], levels of the model."""


def read_pictures(
    path: str, shapes: list[tuple[int, int, int]], levels: int, *, bits: int | None = None
) -> list[Picture]:
    """Return the pictures of a file, or of all image files below a folder in the order of names.

    Of a folder, files named `GRID` are left out: sampling writes one beside its images.
    shapes: heights, widths and channels that are allowed. levels, bits: of the model; with bits the
    levels are those of `ImageDataset.quantize`, otherwise the nearest. Raises UserError for a
    folder without images, a damaged file, and a picture of another size.
    """
    given = Path(path)
    paths = [given]
    if given.is_dir():
        paths = [given / name for name in sorted(find_images(given)) if name.name != GRID]
        if not paths:
            raise UserError(f"{path} holds no images")
    pictures = []
    for file in paths:
        pixels = _decode(file, shapes)
        found = pixels >> (8 - bits) if bits is not None else to_levels(pixels, levels)
        pictures.append(Picture(file, torch.from_numpy(found.astype(np.uint8))))
    return pictures


def filled_pixels(mask: str, height: int, width: int) -> Tensor:
    """Return the pixels that a mask names, True where a pixel is to be filled: bool [H, W].

    mask: one of `HALVES`, or an image file whose pixels of at least half the brightness are filled.
    Raises UserError for a file that is damaged or of another size, and where no pixel is filled.
    """
    filled = torch.zeros(height, width, dtype=torch.bool)
    if mask in HALVES:
        rows, columns = slice(None), slice(None)
        rows = {"top": slice(height // 2), "bottom": slice(height // 2, None)}.get(mask, rows)
        columns = {"left": slice(width // 2), "right": slice(width // 2, None)}.get(mask, columns)
        filled[rows, columns] = True
    else:
        filled = torch.from_numpy(_decode(Path(mask), [(height, width, 1)])[..., 0] >= 128)
    if not filled.any():
        raise UserError(
            f"--mask {mask} fills no pixel of an image of {height} rows and {width} columns; "
            "expected some white pixels"
        )
    return filled


def class_index(picture: Picture, class_names: list[str]) -> int:
    """Return the class of a picture from the name of its folder.

    Raises UserError where the folder is not named after a class.
    """
    folder = picture.path.resolve().parent.name
    if folder not in class_names:
        raise UserError(
            f"the class of {picture.path} is unknown: its folder {folder} is none of "
            f"{', '.join(class_names)}; give the class with --label, from 0"
        )
    return class_names.index(folder)


def _decode(path: Path, shapes: list[tuple[int, int, int]]) -> NDArray[np.uint8]:
    """Return the 8-bit pixels of a file in the first of the shapes that it has."""
    for shape in shapes:
        try:
            return decode_image(path.read_bytes(), *shape, resize=False)
        except ImageSizeError as error:
            found = error
        # Pillow raises a dozen types of exception for damaged files.
        except Exception as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise UserError(f"{path} cannot be read as an image: {why or error}") from error
    sizes = " or ".join(f"{width} wide and {height} high" for height, width, _ in shapes)
    raise UserError(f"{path} is {found} (pixels), expected {sizes}")
