"""Image files as 8-bit integers.

They are decoded by Pillow: torchvision.io reads no BMP, TIFF and PPM, and has no crop and no
transparency over white.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray


class ImageSizeError(ValueError):
    """An image that is not of the expected height and width (pixels)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__(f"{width} wide and {height} high")


def decode_image(
    content: bytes, height: int, width: int, channels: int, *, resize: bool
) -> NDArray[np.uint8]:
    """Decode an image file: uint8 [height, width, channels].

    Applies the camera's orientation, lays transparency over white, and shifts 16-bit grey to 8
    bits. Raises ImageSizeError for another size unless `resize`, and the exceptions of Pillow for
    a damaged file.
    """
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as opened:
        opened.load()  # finds a truncated file
        image: Image.Image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's conversion would clip at 255
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
