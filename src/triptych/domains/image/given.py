"""Pictures and masks that a user gives as files, and the samples given them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.domains.image.domain import HALVES, ImageSampleOptions
from triptych.domains.image.model import average_down
from triptych.domains.pictures import render
from triptych.domains.pictures.formats import ImageSizeError, decode_image
from triptych.domains.pictures.image_folder import find_images
from triptych.domains.pictures.options import GRID, SAMPLE
from triptych.domains.pictures.render import to_levels
from triptych.errors import UserError
from triptych.files.results import OutputFolder
from triptych.types import ProgressFactory

if TYPE_CHECKING:
    from triptych.domains.image.inference import ImageModel


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
        scaled = pixels >> (8 - bits) if bits is not None else to_levels(pixels, levels)
        pictures.append(Picture(file, torch.from_numpy(scaled.astype(np.uint8))))
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
            other_size = error
        # Pillow raises a dozen types of exception for damaged files.
        except Exception as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise UserError(f"{path} cannot be read as an image: {why or error}") from error
    sizes = " or ".join(f"{width} wide and {height} high" for height, width, _ in shapes)
    raise UserError(f"{path} is {other_size} (pixels), expected {sizes}")


def write_completions(
    trained: ImageModel, options: ImageSampleOptions, out: OutputFolder, report: ProgressFactory
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
    out.check_free([*map(SAMPLE.format, range(len(pictures) * options.count))])
    images = np.stack([picture.pixels.numpy() for picture in pictures])  # [N, H, W, C]
    samples = trained.complete(
        images,
        filled,
        **options.arguments_of(trained.complete),
        labels=_labels(trained, pictures, options.label),
        progress=report("sampled positions"),
    )  # [N, count, H, W, C]
    originals = render.to_bytes(images, model.levels)
    first = [render.in_colour(originals), render.hide(originals, filled)]
    render.write_rows(out.path / GRID, [*first, *_columns(samples, model.levels)])
    return samples.reshape(-1, *model.shape)


def write_upscaled(
    trained: ImageModel, options: ImageSampleOptions, out: OutputFolder, report: ProgressFactory
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
    out.check_free([*map(SAMPLE.format, range(len(pictures) * options.count))])
    known = [tuple(picture.pixels.shape) == model.shape for picture in pictures]
    small = torch.stack(
        [
            average_down(picture.pixels.unsqueeze(0), factor)[0] if large else picture.pixels
            for picture, large in zip(pictures, known, strict=True)
        ]
    )  # [N, h, w, C]
    samples = trained.upscale(
        small.numpy(),
        **options.arguments_of(trained.upscale),
        labels=_labels(trained, pictures, options.label),
        progress=report("sampled positions"),
    )  # [N, count, H, W, C]
    enlarged = render.in_colour(render.to_bytes(render.repeat(small, factor), model.levels))
    columns = [enlarged, *_columns(samples, model.levels)]
    if any(known):
        originals = np.full_like(enlarged, render.HIDDEN)
        for row, picture in enumerate(pictures):
            if known[row]:
                originals[row] = render.to_bytes(picture.pixels, model.levels)
        columns.append(originals)
    render.write_rows(out.path / GRID, columns)
    return samples.reshape(-1, *model.shape)


def _read(trained: ImageModel, path: str, shapes: list[tuple[int, int, int]]) -> list[Picture]:
    bits = trained.settings.bits
    return read_pictures(path, shapes, trained.full_model.levels, bits=bits)


def _labels(trained: ImageModel, pictures: list[Picture], label: int | None) -> list[int] | None:
    """Return the class of each picture; None for an unconditional model."""
    if label is not None:
        trained.labels_for(1, label)  # refuses a class that the model does not have
        return [label] * len(pictures)
    if not trained.full_model.n_classes:
        return None
    return [class_index(picture, trained.vocabulary["class_names"]) for picture in pictures]


def _columns(samples: NDArray[np.uint8], levels: int) -> list[NDArray[np.uint8]]:
    """Return the columns of a grid from samples [N, count, H, W, C]: RGB [N, H, W, 3] each."""
    return [
        render.in_colour(render.to_bytes(samples[:, i], levels)) for i in range(samples.shape[1])
    ]
