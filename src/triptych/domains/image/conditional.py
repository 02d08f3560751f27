"""Result files of `sample image --complete` and `--upscale`: samples given pictures of a user."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.image.domain import ImageSampleOptions
from triptych.domains.image.given_pictures import Picture, class_index, filled_pixels, read_pictures
from triptych.domains.image.image_generation import ImageGenerator
from triptych.domains.image.super_resolution import average_down
from triptych.domains.pictures import render
from triptych.domains.pictures.options import GRID, image_names
from triptych.errors import UserError
from triptych.files.results import OutputFolder
from triptych.types import ProgressFactory


def write_completions(
    trained: ImageGenerator, options: ImageSampleOptions, out: OutputFolder, report: ProgressFactory
) -> NDArray[np.uint8]:
    """Complete the pictures of the options and write the grid: uint8 [N count, H, W, C].

    The grid has a row for each picture: the picture, its given pixels, its completions. Raises
    UserError for pictures, masks and classes that do not fit the model.
    """
    if options.complete is None or options.mask is None:
        raise ValueError("complete and mask belong together")
    if options.compile:
        raise UserError("compile is not available with complete; leave one of them out")
    model = trained.full_model
    filled = filled_pixels(options.mask, *model.shape[:2]).numpy()
    pictures = _read(trained, options.complete, [model.shape])
    out.check_free(image_names(len(pictures) * options.count))
    images = np.stack([picture.pixels.numpy() for picture in pictures])  # [N, H, W, C]
    made = trained.complete(
        images,
        filled,
        **options.arguments_of(trained.complete),
        labels=_labels(trained, pictures, options.label),
        progress=report("sampled positions"),
    )  # [N, count, H, W, C]
    originals = render.to_bytes(images, model.levels)
    first = [render.in_colour(originals), render.hide(originals, filled)]
    render.write_rows(out.path / GRID, [*first, *_columns(made, model.levels)])
    return made.reshape(-1, *model.shape)


def write_upscaled(
    trained: ImageGenerator, options: ImageSampleOptions, out: OutputFolder, report: ProgressFactory
) -> NDArray[np.uint8]:
    """Upscale the pictures of the options and write the grid: uint8 [N count, H, W, C].

    The grid has a row for each picture: the small one, the samples, and the original where some
    are known. Raises UserError as `write_completions`.
    """
    if options.upscale is None:
        raise ValueError("upscale names no picture")
    model, factor = trained.upscaling_model()
    small_shape = trained.settings.model.super_resolution.small_shape(model.shape)
    pictures = _read(trained, options.upscale, [small_shape, model.shape])
    out.check_free(image_names(len(pictures) * options.count))
    known = [tuple(picture.pixels.shape) == model.shape for picture in pictures]
    small = torch.stack(
        [
            average_down(picture.pixels.unsqueeze(0), factor)[0] if large else picture.pixels
            for picture, large in zip(pictures, known, strict=True)
        ]
    )  # [N, h, w, C]
    made = trained.upscale(
        small.numpy(),
        **options.arguments_of(trained.upscale),
        labels=_labels(trained, pictures, options.label),
        progress=report("sampled positions"),
    )  # [N, count, H, W, C]
    enlarged = render.in_colour(render.to_bytes(render.repeat(small, factor), model.levels))
    columns = [enlarged, *_columns(made, model.levels)]
    if any(known):
        originals = np.full_like(enlarged, render.HIDDEN)
        for row, picture in enumerate(pictures):
            if known[row]:
                originals[row] = render.to_bytes(picture.pixels, model.levels)
        columns.append(originals)
    render.write_rows(out.path / GRID, columns)
    return made.reshape(-1, *model.shape)


def _read(trained: ImageGenerator, path: str, shapes: list[tuple[int, int, int]]) -> list[Picture]:
    bits = trained.settings.bits
    return read_pictures(path, shapes, trained.full_model.levels, bits=bits)


def _labels(
    trained: ImageGenerator, pictures: list[Picture], label: int | None
) -> list[int] | None:
    """Return the class of each picture; None for an unconditional model."""
    if label is not None:
        trained.labels_for(1, label)  # refuses a class that the model does not have
        return [label] * len(pictures)
    if not trained.full_model.n_classes:
        return None
    return [class_index(picture, trained.vocabulary["class_names"]) for picture in pictures]


def _columns(made: NDArray[np.uint8], levels: int) -> list[NDArray[np.uint8]]:
    """Return the columns of a grid from samples [N, count, H, W, C]: RGB [N, H, W, 3] each."""
    return [render.in_colour(render.to_bytes(made[:, i], levels)) for i in range(made.shape[1])]
