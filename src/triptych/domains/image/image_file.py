"""One image file of any common format: integers, or a look at its size."""

from __future__ import annotations

import io

import numpy as np

ORIENTATION = 0x0112
"""The tag of Exif that says how the camera was held."""
SIDEWAYS = (5, 6, 7, 8)
"""Its values that swap height and width."""


def decode_image(
    content: bytes, *, height: int, width: int, channels: int, resize: bool
) -> np.ndarray:
    """Decode one image file: uint8 [height, width, channels].

    Camera rotation is applied, transparency is laid over white, 16-bit grey is shifted to 8 bits.
    Raises ImageSizeError where the size differs and resize is False, and whatever Pillow raises
    on a damaged file.
    """
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as opened:
        opened.load()  # a cut file fails here, not in the middle of a run
        image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would clip at 255
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("L" if channels == 1 else "RGB")
    if (image.height, image.width) != (height, width):
        if not resize:
            raise ImageSizeError(image.height, image.width)
        image = ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS)
    return np.asarray(image, dtype=np.uint8).reshape(height, width, channels)


def check_header(content: bytes, *, height: int, width: int) -> None:
    """Look at a image's size, where it is square without decoding it.

    Raises ImageSizeError where the size differs, camera rotation applied, and whatever Pillow
    raises on a file that it cannot open.
    """
    from PIL import Image

    with Image.open(io.BytesIO(content)) as opened:
        found = opened.height, opened.width
        if found == (height, width) and height == width:
            return  # however it is turned; to look for that Pillow decodes a PNG
        if opened.getexif().get(ORIENTATION, 1) in SIDEWAYS:
            found = found[::-1]
    if found != (height, width):
        raise ImageSizeError(*found)


class ImageSizeError(ValueError):
    """A image that decodes but is not of the asked height and width (pixels)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__(f"{width} wide and {height} high")
