"""Domain of images: what its commands do and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from triptych.domains.base import Domain, FolderCommand, ProgressFactory
from triptych.domains.files import OutputFolder
from triptych.domains.image.options import (
    DRAWING,
    GRID,
    NUMBERS,
    ImageAttentionOptions,
    ImageSampleOptions,
)
from triptych.domains.options import counted

if TYPE_CHECKING:
    from triptych.domains.image.inference import ImageModel
    from triptych.training.data import FixedBatches, ResumableLoader
    from triptych.training.module import TrainingModule


def write_samples(
    model: ImageModel, options: ImageSampleOptions, out: OutputFolder, report: ProgressFactory
) -> str:
    """Sample images and write each as a PNG, and all as one grid."""
    images = model.sample(
        options.count,
        label=options.label,
        progress=report("sampled positions"),
        **options.settings(),
    )
    model.save_images(out.path, images)
    model.save_grid(out.path / GRID, images)
    return f"{counted(options.count, 'image', 'images')} and {GRID} are in {out}"


def write_attention(
    model: ImageModel, options: ImageAttentionOptions, out: OutputFolder, report: ProgressFactory
) -> str:
    """Sample an image and write the attention weights that predicted some of its pixels."""
    from triptych.domains.image.inference import spread_pixels
    from triptych.domains.image.render import draw_attention

    height, width, _ = model.shape
    pixels = spread_pixels(height, width)
    if options.row is not None and options.column is not None:
        pixels = [(options.row, options.column)]
    layer = options.layer or model.config.model.transformer.n_layers
    model.check_attention(pixels, layer=layer, head=options.head)  # before the image is sampled
    label = options.label if model.class_conditional else None
    progress = report("sampled positions")
    image = model.sample(1, seed=options.seed, label=label, progress=progress)[0]  # [H, W, C]
    maps = model.attention(image, pixels, label=label, layer=layer, head=options.head)  # [N, H, W]
    heads = "mean of all heads" if options.head is None else f"head {options.head}"
    title = f"layer {layer}, {heads}: weights (red) of the prediction of a pixel (blue)"
    out.write(DRAWING, draw_attention(image, model.levels, pixels, maps, title=title))
    numbers = {
        "layer": layer,
        "head": options.head,
        "label": label,
        "image": image.tolist(),
        "pixels": [
            {"row": row, "column": column, "weights": weights.tolist()}
            for (row, column), weights in zip(pixels, maps, strict=True)
        ],
    }
    out.write_json(NUMBERS, numbers)
    return f"{DRAWING} and {NUMBERS} are in {out}"


class ImageDomain(Domain):
    """Images as sequences of pixels."""

    name: ClassVar[str] = "image"
    sample = FolderCommand(ImageSampleOptions, "Sample images.", write_samples)
    attention = FolderCommand(
        ImageAttentionOptions,
        "Sample an image and draw the attention weights that predicted some of its pixels.",
        write_attention,
    )

    def config_class(self) -> type[Any]:
        from triptych.domains.image.config import Config

        return Config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        from triptych.domains.image.task import prepare

        return prepare(config, vocabulary)

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> ImageModel:
        from triptych.domains.image.inference import restore

        return restore(checkpoint, device)


DOMAIN = ImageDomain()
