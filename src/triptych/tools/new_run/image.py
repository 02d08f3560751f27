"""What a user's folder of images holds: counts, sizes, colour modes and classes."""

from __future__ import annotations

import io
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

from triptych.domains.options import NewRunOptions
from triptych.domains.pictures.image_folder import SUFFIXES, list_split
from triptych.files.splits import hash_position
from triptych.tools.new_run.data import (
    HELD_OUT,
    Description,
    ReadFiles,
    Setting,
    data_files,
    held_out,
    span,
)

SIZES = Path(__file__).with_suffix(".yaml")
KIND = "images"
LEAST = 4
"""Fewest images of which some can be trained on and others held out."""
MOST_LOOKED_AT = 2000
"""Images that are decoded to learn their sizes; of more, an evenly spaced part."""
LONGEST_SIDE = 64
"""Height and width up to which images of one size keep it."""
SIDE = 32
"""Height and width of other images."""
GREY = ("1", "L", "LA", "F")
"""Pillow's modes without colour, besides those of integers, which begin with I."""


class Looks(NamedTuple):
    """What one image file holds."""

    name: Path
    """Relative to the folder."""
    place: float
    """That decides its split, see `hash_position`."""
    width: int
    height: int
    mode: str


def describe(options: NewRunOptions) -> Description:
    """Look at a folder of images.

    Raises UserError for a folder that `image_folder.list_split` refuses, and as `data_files` does.
    """
    folder = Path(options.data).expanduser()
    files = data_files(folder, SUFFIXES, KIND)
    listing = list_split(folder, "train")
    every = max(1, -(-len(files) // MOST_LOOKED_AT))
    looked = ReadFiles(partial(_read, folder), files[::every], what="images looked at")
    looked.check(folder, least=LEAST, what=KIND)
    n_images = len(files) - len(looked.reasons) * every
    settings = {"data.source.directory": Setting(options.data)}
    if every == 1:
        training = {path for path, _ in listing.files}
        places = [image.place for image in looked.found if image.name in training]
        splits = [name for name in HELD_OUT if name in listing.hashed_splits]
        for name, share in held_out(places, splits, usual=0.1, what=KIND).items():
            settings[f"data.source.{name}"] = share
    settings |= _shape(looked.found)
    if listing.class_names:
        n_classes = len(listing.class_names)
        why = f"{n_classes} sub-folders are classes: sample with --label 0 to {n_classes - 1}"
        settings["model.class_conditional"] = Setting(n_classes > 1, why)
    return Description(
        template="folder",
        sizes=SIZES,
        unit=KIND,
        amount=n_images,
        items=n_images * (1 if listing.hashed_splits < {*HELD_OUT} else 0.8),
        settings=settings,
        facts=_facts(looked, listing.class_names, len(files)),
        advice=[
            "for photographs of more than 32 x 32 pixels raise height and width: time and memory "
            "grow with their product"
        ],
    )


def _read(folder: Path, path: Path) -> Looks | str:
    """Return what an image file holds, or its name where it is damaged."""
    from PIL import Image

    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            image.load()  # finds a truncated file
            name = path.relative_to(folder)
            return Looks(name, hash_position(content), image.width, image.height, image.mode)
    # Pillow raises a dozen types of exception for damaged files.
    except Exception:
        return str(path.relative_to(folder))


def _shape(found: list[Looks]) -> dict[str, Setting]:
    """Return height, width and channels of the images that the model sees."""
    one_size = len({(image.width, image.height) for image in found}) == 1
    width, height = found[0].width, found[0].height
    why = "pixels, the size of all images"
    if not one_size or max(width, height) > LONGEST_SIDE:
        why, width, height = "pixels; images are cropped and scaled", SIDE, SIDE
    grey = all(image.mode in GREY or image.mode.startswith("I") for image in found)
    return {
        "data.source.height": Setting(height, why),
        "data.source.width": Setting(width),
        "data.source.channels": Setting(1 if grey else 3, "grey" if grey else "colours"),
    }


def _facts(looked: ReadFiles[Path, Looks], class_names: tuple[str, ...], n_files: int) -> list[str]:
    found = looked.found
    all_read = len(found) + len(looked.reasons) == n_files
    part = "" if all_read else f", of which {len(found):,} were looked at"
    modes = Counter(image.mode for image in found).most_common()
    shown_modes = ", ".join(f"{mode} in {count:,}" for mode, count in modes)
    lines = [
        f"{n_files - len(looked.reasons):,} images{part}; Pillow's colour modes: {shown_modes}",
        f"width {span([image.width for image in found])} and height "
        f"{span([image.height for image in found])} pixels",
    ]
    if class_names:
        shown = ", ".join(class_names[:8]) + (", ..." if len(class_names) > 8 else "")
        lines.append(f"{len(class_names)} classes by sub-folder: {shown}")
    if len(found) < 1000:
        lines.append(
            "few images: the model will overfit; best.ckpt keeps the step of the best validation"
        )
    return [*lines, *filter(None, [looked.skipped()])]
