"""Domain of images: options of its commands and the files that they write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from triptych.domains.base import Domain, Report, Verb
from triptych.domains.files import OutputFolder
from triptych.domains.options import AttentionOptions, SampleOptions, check_seed, counted

if TYPE_CHECKING:
    from triptych.domains.image.inference import ImageModel
    from triptych.training.data import FixedBatches, ResumableLoader
    from triptych.training.module import TrainingModule

GRID, DRAWING, NUMBERS = "grid.png", "attention.png", "attention.json"


@dataclass(frozen=True, kw_only=True)
class ImageSampleOptions(SampleOptions):
    """Options of `triptych sample image`."""

    out: str
    """Folder for grid.png and one PNG per image; created if missing."""
    count: int = 16
    """Number of images."""
    label: int | None = None
    """Class of the images, a number from 0, for class-conditional models; null for all in turn."""

    def output_names(self) -> list[str]:
        return [GRID, *(f"sample-{index:04d}.png" for index in range(self.count))]


@dataclass(frozen=True, kw_only=True)
class ImageAttentionOptions(AttentionOptions):
    """Options of `triptych attention image`."""

    out: str
    """Folder for attention.png and attention.json; created if missing."""
    seed: int = 0
    """Seed of the sampled image."""
    label: int = 0
    """Class of the image, a number from 0, for class-conditional models."""
    row: int | None = None
    """Row of the predicted pixel, from 0; null, with column, for six pixels of the image."""
    column: int | None = None
    """Column of the predicted pixel, from 0; null, with row, for six pixels of the image."""

    def __post_init__(self) -> None:
        """Raise ValueError for impossible values."""
        super().__post_init__()
        if (self.row is None) != (self.column is None):
            raise ValueError(
                f"row and column name a pixel together, got row {self.row} and column {self.column}"
            )
        check_seed(self.seed)

    def output_names(self) -> list[str]:
        return [DRAWING, NUMBERS]


def write_samples(
    model: ImageModel, options: ImageSampleOptions, out: OutputFolder, report: Report
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
    model: ImageModel, options: ImageAttentionOptions, out: OutputFolder, report: Report
) -> str:
    """Sample an image and write the attention weights that predicted some of its pixels."""
    from triptych.domains.image.attention import attend, check, spread_pixels
    from triptych.domains.image.draw_attention import draw

    task = model.task
    conditional = task.model.classes is not None
    height, width, _ = task.model.shape
    pixels = spread_pixels(height, width)
    if options.row is not None and options.column is not None:
        pixels = [(options.row, options.column)]
    check(task, pixels, layer=options.layer, head=options.head)  # before the image is sampled
    image = model.sample(
        1,
        seed=options.seed,
        label=options.label if conditional else None,
        progress=report("sampled positions"),
    )[0]  # [H, W, C]
    layer = options.layer or task.config.model.n_layers
    maps = attend(
        task, image, pixels, label=options.label, layer=layer, head=options.head
    )  # [N, H, W]
    heads = "mean of all heads" if options.head is None else f"head {options.head}"
    title = f"layer {layer}, {heads}: weights (red) of the prediction of a pixel (blue)"
    out.write(DRAWING, draw(image, model.levels, pixels, maps, title=title))
    numbers = {
        "layer": layer,
        "head": options.head,
        "label": options.label if conditional else None,
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
    sample = Verb(ImageSampleOptions, "Sample images.", write_samples)
    attention = Verb(
        ImageAttentionOptions,
        "Sample an image and draw the attention weights that predicted some of its pixels.",
        write_attention,
    )

    def config_class(self) -> type[Any]:
        from triptych.domains.image.task import Config

        return Config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        from triptych.domains.image.task import prepare

        return prepare(config, vocabulary)

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> ImageModel:
        from triptych.domains.image.inference import load

        return load(checkpoint, device=device)


DOMAIN = ImageDomain()
