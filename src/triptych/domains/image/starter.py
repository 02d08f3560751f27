"""Starter config for a folder of images: counts, sizes, modes, classes, and what they suggest."""

from __future__ import annotations

import io
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

from triptych.config.template import Setting
from triptych.domains.options import NewRunOptions
from triptych.domains.pictures.image_folder import SUFFIXES, list_split
from triptych.domains.starter import (
    HELD_OUT,
    Size,
    Starter,
    held_out_settings,
    size_for,
    span,
    steps,
)
from triptych.domains.user_files import ReadFiles, data_files
from triptych.files.splits import hash_position

KIND = "images"
LEAST = 4
"""Fewest images of which some can be trained on and others held out."""
MOST_LOOKED_AT = 2000
"""Images that are decoded to learn their sizes; of more, an evenly spaced part."""
LONGEST_SIDE = 64
"""Height and width up to which images of one size keep it."""
SIDE = 32
"""Height and width of other images."""
SIZES = (
    Size(4, 128, 4, 512, 0.2, batch=8, epochs=60, below=1000, learning_rate=1e-3),
    Size(6, 256, 8, 1024, 0.1, batch=8, epochs=20, below=6000),
    Size(6, 256, 8, 1024, 0.1, batch=16, epochs=20, below=20_000),
    Size(6, 256, 8, 1024, 0.0, batch=16, epochs=5),
)
"""By the number of images."""
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


def look(options: NewRunOptions) -> Starter:
    """Look at a folder of images; return the settings of a first run.

    Raises UserError for a folder that `image_folder.list_split` refuses, and as `data_files` does.
    """
    folder = Path(options.data).expanduser()
    files = data_files(folder, SUFFIXES, KIND)
    listing = list_split(folder, "train")
    every = max(1, -(-len(files) // MOST_LOOKED_AT))
    looked = ReadFiles(partial(_read, folder), files[::every], what="images looked at")
    looked.check(folder, least=LEAST, what=KIND)
    found = looked.found
    n_images = len(files) - len(looked.reasons) * every
    n_train = n_images if listing.hashed_splits < {"validation", "test"} else n_images * 0.8
    settings = {"data.source.directory": Setting(options.data)}
    if every == 1:
        training = {path for path, _ in listing.files}
        places = [image.place for image in found if image.name in training]
        held_out = [name for name in HELD_OUT if name in listing.hashed_splits]
        settings |= held_out_settings(places, held_out, KIND, usual=0.1)
    settings |= _shape(found)
    if listing.class_names:
        n_classes = len(listing.class_names)
        why = f"{n_classes} sub-folders are classes: sample with --label 0 to {n_classes - 1}"
        settings["model.class_conditional"] = Setting(n_classes > 1, why)
    size = size_for(n_images, SIZES)
    settings["data.batch_size"] = Setting(size.batch)
    settings |= size.settings(f"a size for {n_images:,} images")
    settings |= steps(batches=n_train / size.batch, epochs=size.epochs, least=300, most=20_000)
    advice = (
        "for photographs of more than 32 x 32 pixels raise height and width: time and memory grow "
        "with their product"
    )
    sentences = _sentences(looked, listing.class_names, len(files))
    return Starter("folder", sentences, settings, [advice])


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


def _sentences(
    looked: ReadFiles[Path, Looks], class_names: tuple[str, ...], n_files: int
) -> list[str]:
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
