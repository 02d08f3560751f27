"""Image files: which are read, and how their content becomes 8-bit values."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from triptych.domains.pictures.options import Reading
from triptych.files.folders import named

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]

UNREADABLE = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PALM", "PDF", "WMF"}
"""Formats that Pillow only writes, or reads with the help of other programs."""
NOTES = {
    "first": "only the first of several frames is read",
    "pages": "damaged pages are left out",
    "turned": "the orientation is damaged, so that nothing is turned",
    "clipped": "values outside of value_range {0.value_range} are cut off",
    "blank": "one colour is left, as transparent pixels get the background's ({0.background})",
}
"""What may be said of an image that is read; format it with its `Reading`."""
DARK = 64
"""Images without a larger value than this are worth a sentence."""
ORIENTATION = 0x0112
"""EXIF's number of the orientation, 1 for an upright image."""
NO_IMAGE_PAGE = 5
"""Bits of TIFF's NewSubfileType: a smaller copy of another page (1), a mask of one (4)."""


class ValueRangeError(ValueError):
    """An image of more than 8 bits, without a range of values to scale it by.

    mode: of Pillow. lowest, highest: of its values. whole: whether all are whole numbers.
    """

    def __init__(self, mode: str, lowest: float, highest: float, whole: bool) -> None:
        super().__init__(mode, lowest, highest, whole)
        self.mode, self.lowest, self.highest, self.whole = mode, lowest, highest, whole

    def __str__(self) -> str:
        values = f"values from {self.lowest:g} to {self.highest:g}"
        return f"{values} (Pillow's mode {self.mode}), expected 8 bits"

    def suggested(self) -> list[float]:
        """Return a range for such images: that of so many bits, 0 to 1, or their own."""
        if self.lowest < 0 or (not self.whole and self.highest > 1):
            return [self.lowest, max(self.highest, self.lowest + 1)]
        return [0, 2 ** max(1, int(self.highest).bit_length()) - 1 if self.whole else 1]


@cache
def image_suffixes() -> tuple[str, ...]:
    """Return the endings of the files that the installed Pillow reads, such as `.png`."""
    from PIL import Image

    known = Image.registered_extensions()
    return tuple(sorted(ending for ending, form in known.items() if form not in UNREADABLE))


def pages(content: bytes, notes: set[str]) -> Iterator[Image.Image]:
    """Yield the images of a file, turned as the camera says: the pages of a TIFF, else one.

    notes: to which keys of `NOTES` are added. Raises the exceptions of Pillow for a damaged file,
    a dozen types.
    """
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # of half an error's size
        opened = Image.open(io.BytesIO(content))
    with opened:
        opened.load()  # finds a truncated file
        yield _upright(opened, notes)
        if opened.format != "TIFF":
            with suppress(Exception):  # what follows the first frame may be damaged
                notes.update({"first"} if getattr(opened, "is_animated", False) else ())
            return
        for number in count(1):
            try:
                opened.seek(number)
                if opened.tag_v2.get(254, 0) & NO_IMAGE_PAGE:  # type: ignore[attr-defined]
                    continue
                opened.load()
            except EOFError:
                return
            except Exception:
                notes.add("pages")
                if opened.tell() < number:  # there is no way behind it
                    return
                continue
            yield _upright(opened, notes)


def _upright(image: Image.Image, notes: set[str]) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image) if image.getexif().get(ORIENTATION, 1) != 1 else image
    except Exception:
        notes.add("turned")
        return image


def to_eight_bits(image: Image.Image, reading: Reading, notes: set[str]) -> Image.Image:
    """Return an image without transparency and with values from 0 to 255.

    notes: to which keys of `NOTES` are added. Raises ValueRangeError for an image of more than 8
    bits where `reading` has no range.
    """
    from PIL import Image

    if image.mode.startswith(("I", "F")):
        values = np.asarray(image, dtype=np.float64)
        if reading.value_range is None:
            finite = values[np.isfinite(values)]
            ends = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
            raise ValueRangeError(image.mode, *ends, bool((finite % 1 == 0).all()))
        low, high = reading.value_range
        if ((values < low) | (values > high)).any():
            notes.add("clipped")
        # Of 16 bits and 0 to 65,535 these are the upper eight bits.
        scaled = np.nan_to_num((values - low) * 256 / (high - low)).clip(0, 255)
        return Image.fromarray(scaled.astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        transparent = (np.asarray(image)[..., 3] < 255).any()
        image = Image.alpha_composite(Image.new("RGBA", image.size, reading.background), image)
        pixels = np.asarray(image)  # [H, W, 4]
        if transparent and (pixels == pixels[:1, :1]).all():
            notes.add("blank")
    return image


def decode_pages(
    content: bytes,
    channels: int,
    *,
    size: tuple[int, int] | None = None,
    reading: Reading,
    notes: set[str],
) -> Iterator[Pixels]:
    """Yield the images of a file: uint8 [H, W, channels].

    size: height and width to which images are cropped and scaled, in pixels; None for their own.
    notes: to which keys of `NOTES` are added. Raises ValueRangeError for more than 8 bits without a
    range in `reading`, and the exceptions of Pillow for a damaged file.
    """
    from PIL import Image, ImageOps

    for page in pages(content, notes):
        image = to_eight_bits(page, reading, notes)
        image = image.convert("L" if channels == 1 else "RGB")
        if size is not None and (image.height, image.width) != size:
            image = ImageOps.fit(image, size[::-1], Image.Resampling.LANCZOS)
        yield np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, channels)


def notes_about(notes: Mapping[str, set[str]], reading: Reading) -> Iterator[str]:
    """Yield a sentence about each key of `NOTES` that files have; notes: of each file by name."""
    for note, sentence in NOTES.items():
        if files := sorted(file for file, of in notes.items() if note in of):
            where = f"{len(files):,} of {len(notes):,} files"
            yield f"{sentence.format(reading)}: {where}, {named(files)}"


def why_unreadable(error: Exception) -> str:
    """Return in a few words why a file is no image that can be read."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, Image.DecompressionBombError):
        return f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels"
    if isinstance(error, UnidentifiedImageError):
        return "no image that Pillow knows"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0][:80]
