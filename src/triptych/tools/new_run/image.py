"""What a user's folder of images holds: counts, sizes, colour modes and classes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from triptych.domains.options import NewRunOptions, counted
from triptych.domains.pictures.decode import (
    ValueRangeError,
    image_suffixes,
    pages,
    to_eight_bits,
    why_unreadable,
)
from triptych.domains.pictures.image_folder import Listing, list_split
from triptych.domains.pictures.options import Reading
from triptych.errors import UserError
from triptych.files.leaks import TRAIN
from triptych.files.splits import ALL, hash_position
from triptych.tools.new_run.data import (
    HELD_OUT,
    Description,
    Setting,
    data_files,
    held_out,
    read_usable,
    span,
)

if TYPE_CHECKING:
    from PIL import Image

KIND = "images"
LEAST = 4
"""Fewest images of which some can be trained on and others held out."""
MOST_LOOKED_AT = 2000
"""Images that are decoded to learn their sizes; of more, an evenly spaced part."""
LONGEST_SIDE = 64
"""Height and width up to which images of one size keep it."""
SIDE = 32
"""Height and width of other images."""
LOOKED_AT_SIDE = 64
"""Rows and columns of an image, at most, that are searched for colours."""


class Page(NamedTuple):
    """One image of a file, after it is turned."""

    width: int
    height: int
    mode: str
    """Of Pillow."""
    grey: bool
    """Whether its three channels are equal."""
    deep: ValueRangeError | None
    """Values of an image of more than 8 bits."""


class Looks(NamedTuple):
    """What one image file holds."""

    name: Path
    """Relative to the folder."""
    place: float
    """That decides its split, see `hash_position`."""
    pages: list[Page]


def describe(options: NewRunOptions) -> Description:
    """Look at a folder of images.

    Raises UserError for a folder that `image_folder.list_split` refuses, and as `data_files` does.
    """
    folder = Path(options.data).expanduser()
    data_files(folder, image_suffixes(), KIND)
    listing = list_split(folder, ALL)
    splits = [TRAIN, *(name for name in HELD_OUT if name not in listing.hashed_splits)]
    split_of = {path: name for name in splits for path, _ in list_split(folder, name).files}
    files = [path for path, _ in listing.files]
    every = max(1, -(-len(files) // MOST_LOOKED_AT))
    looked = read_usable(
        partial(_read, folder), files[::every], folder,
        what=KIND, least=LEAST, count=lambda file: len(file.pages),
    )  # fmt: skip
    found = [page for file in looked for page in file.pages]
    n_images = len(found) * every
    n_training = n_images * [*split_of.values()].count(TRAIN) / len(files)
    settings = {"data.source.directory": Setting(options.data)}
    if every == 1:
        own = [image for image in looked if split_of[image.name] == TRAIN]
        places = [image.place for image in own for _ in image.pages]
        drawn = [name for name in HELD_OUT if name in listing.hashed_splits]
        shares = held_out(places, drawn, usual=0.1, what=KIND)
        settings |= {f"data.source.{name}": share for name, share in shares.items()}
    settings |= _shape(found) | _range(found)
    if listing.class_names:
        n_classes = len(listing.class_names)
        why = f"{n_classes} sub-folders are classes: sample with --label 0 to {n_classes - 1}"
        settings["model.class_conditional"] = Setting(n_classes > 1, why)
    return Description(
        template="folder",
        unit=KIND,
        amount=n_images,
        items=n_training * (1 if listing.hashed_splits < {*HELD_OUT} else 0.8),
        settings=settings,
        facts=_facts(found, listing, every),
        advice=[
            "for photographs of more than 32 x 32 pixels raise height and width: time and memory "
            "grow with their product"
        ],
    )


def _read(folder: Path, path: Path) -> Looks | str:
    """Return what an image file holds, or its name and why it cannot be read."""
    try:
        content = (folder / path).read_bytes()
        return Looks(path, hash_position(content), [*map(_look_at, pages(content, set()))])
    # Pillow raises a dozen types of exception for damaged files.
    except Exception as error:
        return f"{path} ({why_unreadable(error)})"


def _look_at(page: Image.Image) -> Page:
    about = page.width, page.height, page.mode
    try:
        image = to_eight_bits(page, Reading(), set()).convert("RGB")
    except ValueRangeError as error:
        return Page(*about, True, error)
    sides = (min(page.width, LOOKED_AT_SIDE), min(page.height, LOOKED_AT_SIDE))
    colours = np.asarray(image.resize(sides, resample=0))  # [h, w, 3], pixels of the image
    return Page(*about, bool((colours == colours[..., :1]).all()), None)


def _shape(found: list[Page]) -> dict[str, Setting]:
    """Return height, width and channels of the images that the model sees."""
    one_size = len({(image.width, image.height) for image in found}) == 1
    width, height = found[0].width, found[0].height
    why = "pixels, the size of all images"
    if not one_size or max(width, height) > LONGEST_SIDE:
        why, width, height = "pixels; images are cropped and scaled", SIDE, SIDE
    grey = all(image.grey for image in found)
    return {
        "data.source.height": Setting(height, why),
        "data.source.width": Setting(width),
        "data.source.channels": Setting(1 if grey else 3, "grey" if grey else "colours"),
    }


def _range(found: list[Page]) -> dict[str, Setting]:
    """Return the range of images of more than 8 bits; UserError for whole and for real numbers."""
    deep = [image.deep for image in found if image.deep is not None]
    if not deep:
        return {}
    modes = sorted({values.mode for values in deep})
    ends = min(values.lowest for values in deep), max(values.highest for values in deep)
    common = ValueRangeError("", *ends, all(values.whole for values in deep))
    if len({mode[0] for mode in modes}) > 1:
        raise UserError(
            f"images of Pillow's modes {', '.join(modes)} have values from {ends[0]:g} to "
            f"{ends[1]:g}; expected images of whole numbers or of real numbers (F), not of both"
        )
    why = f"become 0 and 255; values from {ends[0]:g} to {ends[1]:g} were found"
    return {"data.source.value_range": Setting(common.suggested(), why)}


def _facts(found: list[Page], listing: Listing, every: int) -> list[str]:
    part = "" if every == 1 else f", of which {len(found):,} were looked at"
    modes = Counter(image.mode for image in found).most_common()
    shown_modes = ", ".join(f"{mode} in {count:,}" for mode, count in modes)
    lines = [
        f"{len(found) * every:,} images{part}; Pillow's colour modes: {shown_modes}",
        f"width {span([image.width for image in found])} and height "
        f"{span([image.height for image in found])} pixels",
    ]
    if class_names := listing.class_names:
        shown = ", ".join(class_names[:8]) + (", ..." if len(class_names) > 8 else "")
        lines.append(f"{counted(len(class_names), 'class', 'classes')} by sub-folder: {shown}")
    if shares := [split for split in HELD_OUT if split not in listing.hashed_splits]:
        lines.append(f"splits with images of their own: {', '.join(shares)}")
    if len(found) < 1000:
        lines.append(
            "few images: the model will overfit; best.ckpt keeps the step of the best validation"
        )
    return lines
