"""Domain of images: the options of its commands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych.domains.base import Domain
from triptych.domains.options import AttentionOptions, EvaluateOptions, NewRunOptions, SampleOptions
from triptych.domains.pictures.options import GRID, SAMPLE, PixelOptions, Reading
from triptych.types import NonNegativeInt, PositiveInt, Seed

HALVES = ("top", "bottom", "left", "right")
"""Masks that have a name: the half of the image that is filled."""
MASK = f"{', '.join(HALVES)}, or an image file whose white pixels are filled"
PICTURES = "a picture, or a folder of pictures"


@dataclass(frozen=True, kw_only=True)
class ImageEvaluateOptions(EvaluateOptions):
    """Score a model of images on a split of its data."""

    mask: str | None = None
    """Pixels, as in `sample`, whose likelihood given all others is reported too; the others must
    come first in the generation order, as with bottom."""
    samples: NonNegativeInt = 0
    """Images of the split that a model of super-resolution samples from their small ones, for pSNR
    and consistency; 0 for none."""
    seed: Seed = 0
    """Seed of these samples."""

    def input_files(self) -> dict[str, str]:
        return mask_file(self.mask)

    def report(self, result: dict[str, Any]) -> list[str]:
        details = result["details"]
        lines = []
        if scores := details.get("completion"):
            names = {"filled": "filled pixels, given the others", "given": "given pixels"}
            values = [(scores[f"{name}_bits_per_dim"], text) for name, text in names.items()]
            lines.append(f"completion, {scores['images']} images, bits per dim:")
            lines += [f"  {value:.4f}  {text}" for value, text in values if value is not None]
        if scores := details.get("upscaling"):
            lines.append(f"super-resolution, {scores['images']} images:")
            lines += [
                f"  {method:<7}  pSNR {scores[method]['psnr']:.2f} dB; averaged down, "
                f"{scores[method]['consistent_share']:.1%} of the values are the given ones, mean "
                f"error {scores[method]['consistency_error']:.3f} levels"
                for method in ("samples", "nearest", "bicubic")
            ]
        return lines


@dataclass(frozen=True, kw_only=True)
class ImageSampleOptions(SampleOptions):
    """Sample images, also from given pixels or from small images."""

    out: str
    """Folder for grid.png and one PNG per image; created if missing."""
    count: PositiveInt = 4
    """Number of images; with complete or upscale, of each given picture."""
    label: int | None = None
    """Class of the images, a number from 0, for class-conditional models; null for all in turn, and
    with complete or upscale for the class that each picture's folder is named after."""
    complete: str | None = None
    """Picture, or folder of pictures, of the model's size, of which the pixels of the mask are
    sampled again; the grid shows the picture, what is given of it, and the samples. Files of a
    folder named grid.png are left out."""
    mask: str | None = None
    """Pixels to fill, with complete: the half top, bottom, left or right, or an image file of the
    picture's size in which they are white. All other pixels are given and stay as they are."""
    passes: NonNegativeInt | None = None
    """Times that the filled pixels are sampled again, with complete, so that given pixels later in
    the generation order count too; null for 0 where there are none, else 5."""
    upscale: str | None = None
    """Picture, or folder of pictures, that a model of super-resolution samples in full size:
    small ones, or ones of full size, which are averaged down first and shown at the end."""
    background: str | None = None
    """Colour below transparent pixels of these pictures, such as black; null for that of the
    training images, which is white as long as no setting says another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        Reading(self.background or "white")  # checks it
        if self.complete is not None and self.upscale is not None:
            raise ValueError("complete and upscale are two commands: give one of them")
        if (self.complete is None) != (self.mask is None):
            raise ValueError("complete names pictures and mask the pixels to fill: give both")
        if self.passes is not None and self.complete is None:
            raise ValueError("passes belong to complete, which names no picture")

    def input_files(self) -> dict[str, str]:
        paths = {"complete": self.complete, "upscale": self.upscale}
        files = [
            option for option, path in paths.items() if path is not None and not Path(path).is_dir()
        ]
        return mask_file(self.mask) | dict.fromkeys(files, PICTURES)

    def output_names(self) -> list[str]:
        count = 0 if self.complete or self.upscale else self.count
        return [GRID, *map(SAMPLE.format, range(count))]


@dataclass(frozen=True, kw_only=True)
class ImageAttentionOptions(PixelOptions, AttentionOptions):
    """Sample an image and draw the attention weights that predicted some of its pixels.

    The query block and the memory block of each are drawn too.
    """


def mask_file(mask: str | None) -> dict[str, str]:
    """Return the mask as an input file that must exist, unless it is the name of a half."""
    return {} if mask is None or mask in HALVES else {"mask": MASK}


class ImageDomain(Domain):
    """Images as sequences of pixels."""

    name = "image"
    packing = "triptych.domains.pictures.config"
    evaluate_options = ImageEvaluateOptions
    sample_options = ImageSampleOptions
    attention_options = ImageAttentionOptions
    new_run_options = NewRunOptions
    description = "triptych.tools.new_run.image"
    page = "triptych.tools.play.image"
    service = "triptych.tools.serve.services:image"
    limits = "Images of another size or kind than its data, and samples in place of real data."


DOMAIN = ImageDomain()
