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
from triptych.domains.pictures.given import decode_picture, read_pictures
from triptych.domains.pictures.options import GRID, SAMPLE, Reading
from triptych.errors import UserError
from triptych.files.progress import display
from triptych.files.results import OutputFolder

if TYPE_CHECKING:
    from triptych.domains.image.inference import ImageModel


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
        white = decode_picture(Path(mask), [(height, width, 1)], Reading())
        filled = torch.from_numpy(white[..., 0] >= 128)
    if not filled.any():
        raise UserError(
            f"--mask {mask} fills no pixel of an image of {height} rows and {width} columns; "
            "expected some white pixels"
        )
    return filled


def write_given(
    trained: ImageModel, options: ImageSampleOptions, out: OutputFolder
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
    labels, progress = _labels(trained, list(pictures), options.label), display("sampled positions")
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
