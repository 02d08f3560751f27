"""Pictures that a user gives as files, for trained models."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.pictures import render
from triptych.domains.pictures.decode import NOTES, decode_pages, why_unreadable
from triptych.domains.pictures.image_folder import find_images
from triptych.domains.pictures.options import GRID, Reading
from triptych.errors import UserError
from triptych.files.folders import warn_once


def read_pictures(
    path: str, shapes: list[tuple[int, int, int]], levels: int, reading: Reading
) -> dict[Path, Tensor]:
    """Return pictures by path, of a file or of all image files below a folder in order of names.

    Pictures are uint8 [H, W, C], with the levels of the model. Of a folder, files named `GRID` are
    left out: sampling writes one beside its images. shapes: heights, widths and channels that are
    allowed. Raises UserError for a folder without images, a damaged file, and another size.
    """
    given = Path(path)
    paths = [given]
    if given.is_dir():
        paths = [given / name for name in find_images(given)[0] if name.name != GRID]
        if not paths:
            raise UserError(f"{path} holds no images")
    return {
        file: torch.from_numpy(render.to_levels(decode_picture(file, shapes, reading), levels))
        for file in paths
    }


def decode_picture(
    path: Path, shapes: list[tuple[int, int, int]], reading: Reading
) -> NDArray[np.uint8]:
    """Return the 8-bit pixels of a file's first image, of one of the shapes."""
    notes: set[str] = set()
    try:
        images = decode_pages(path.read_bytes(), shapes[0][2], reading=reading, notes=notes)
        pixels = next(images)
        notes.update({"first"} if next(images, None) is not None else ())
    # Pillow raises a dozen types of exception for damaged files.
    except Exception as error:
        raise UserError(f"{path} cannot be read as an image: {why_unreadable(error)}") from error
    if pixels.shape not in shapes:
        sizes = " or ".join(f"{width} wide and {height} high" for height, width, _ in shapes)
        height, width, _ = pixels.shape
        raise UserError(f"{path} is {width} wide and {height} high (pixels), expected {sizes}")
    for note in sorted(notes):
        warn_once(f"{path}: {NOTES[note].format(reading)}")
    return pixels
