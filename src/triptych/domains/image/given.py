"""Pictures and masks that a user gives as files, and the samples given them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.image.domain import HALVES, ImageSampleOptions
from triptych.domains.image.model import average_down
from triptych.domains.pictures import render
from triptych.domains.pictures.data import labels_of, reading_of
from triptych.domains.pictures.decode import NOTES, decode_pages, why_unreadable
from triptych.domains.pictures.image_folder import find_images
from triptych.domains.pictures.options import GRID, SAMPLE, Reading
from triptych.errors import UserError
from triptych.files.folders import warn_once
from triptych.files.results import OutputFolder
from triptych.types import ProgressFactory

if TYPE_CHECKING:
    from triptych.domains.image.inference import ImageModel


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
        file: torch.from_numpy(render.to_levels(_decode(file, shapes, reading), levels))
        for file in paths
    }


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
        white = _decode(Path(mask), [(height, width, 1)], Reading())
        filled = torch.from_numpy(white[..., 0] >= 128)
    if not filled.any():
        raise UserError(
            f"--mask {mask} fills no pixel of an image of {height} rows and {width} columns; "
            "expected some white pixels"
        )
    return filled


def _decode(path: Path, shapes: list[tuple[int, int, int]], reading: Reading) -> NDArray[np.uint8]:
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


def write_given(
    trained: ImageModel, options: ImageSampleOptions, out: OutputFolder, report: ProgressFactory
) -> NDArray[np.uint8]:
    """Complete or upscale the pictures of the options and write the grid: uint8 [N count, H, W, C].

    The grid has a row for each picture. A completion: the picture, its given pixels, the samples.
    Super-resolution: the small picture, the samples, and the original where some are known. Raises
    UserError for pictures, masks and classes that do not fit the model.
    """
    model, levels, shapes = trained.full_model, trained.full_model.levels, []
    if options.complete is not None and options.compile:
        raise UserError("compile is not available with complete; leave one of them out")
    if options.upscale is not None:
        _, factor = trained.upscaling_model()
        shapes.append(trained.settings.model.super_resolution.small_shape(model.shape))
    path, shapes = options.complete or options.upscale or "", [*shapes, model.shape]
    filled = None if options.mask is None else filled_pixels(options.mask, *model.shape[:2]).numpy()
    reading = reading_of(trained.vocabulary)
    if options.background is not None:
        reading = replace(reading, background=options.background)
    pictures = read_pictures(path, shapes, levels, reading)
    out.check_free([*map(SAMPLE.format, range(len(pictures) * options.count))])
    labels, progress = _labels(trained, list(pictures), options.label), report("sampled positions")
    known = [tuple(pixels.shape) == model.shape for pixels in pictures.values()]
    last = []
    if filled is not None:
        images = np.stack([pixels.numpy() for pixels in pictures.values()])  # [N, H, W, C]
        arguments = options.arguments_of(trained.complete)
        samples = trained.complete(images, filled, **arguments, labels=labels, progress=progress)
        originals = render.to_bytes(images, levels)
        first = [render.in_colour(originals), render.hide(originals, filled)]
    else:
        small = torch.stack(
            [
                average_down(pixels.unsqueeze(0), factor)[0] if large else pixels
                for pixels, large in zip(pictures.values(), known, strict=True)
            ]
        )  # [N, h, w, C]
        arguments = options.arguments_of(trained.upscale)
        samples = trained.upscale(small.numpy(), **arguments, labels=labels, progress=progress)
        first = [render.in_colour(render.to_bytes(render.repeat(small, factor), levels))]
        if any(known):
            last = [np.full_like(first[0], render.HIDDEN)]
            for row, pixels in enumerate(pictures.values()):
                if known[row]:
                    last[0][row] = render.to_bytes(pixels, levels)
    scaled = render.to_bytes(samples, levels)  # [N, count, H, W, C]
    columns = [render.in_colour(scaled[:, number]) for number in range(options.count)]
    render.write_rows(out.path / GRID, [*first, *columns, *last])
    return samples.reshape(-1, *model.shape)


def _labels(trained: ImageModel, pictures: list[Path], label: int | None) -> list[int] | None:
    """Return the class of each picture; None for an unconditional model.

    label: of all; None for the class that each picture's folder is named after, UserError for none.
    """
    n_classes = trained.full_model.n_classes
    if label is not None:
        labels = labels_of(len(pictures), label, n_classes)
        return None if labels is None else labels.tolist()
    names = trained.vocabulary["class_names"] if n_classes else []
    folders = [picture.resolve().parent.name for picture in pictures]
    for picture, folder in zip(pictures, folders, strict=True):
        if names and folder not in names:
            raise UserError(
                f"the class of {picture} is unknown: its folder {folder} is none of "
                f"{', '.join(names)}; give the class with --label, from 0"
            )
    return [names.index(folder) for folder in folders] if names else None
