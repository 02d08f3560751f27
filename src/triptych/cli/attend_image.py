"""`triptych attend image`: what some pixels of a sampled image were predicted from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from triptych.cli.options import (
    ProgressOnStderr,
    check_checkpoint,
    check_output,
    open_model,
    read_options,
    write_json,
)
from triptych.cli.shared_options import AttendOptions
from triptych.training.files import write_whole
from triptych.training.run_settings import check_seed

PICTURE, NUMBERS = "attention.png", "attention.json"


@dataclass(frozen=True, kw_only=True)
class Options(AttendOptions):
    """Options of `triptych attend image`."""

    out: str
    """Folder for attention.png and attention.json; made where it is missing."""
    seed: int = 0
    """Seed of the sampled image."""
    label: int = 0
    """Class of the image, a number from 0, where the model knows classes."""
    row: int | None = None
    """Row of the pixel to ask about, from 0; null, with column, for six over the image."""
    column: int | None = None
    """Column of the pixel to ask about, from 0; null, with row, for six over the image."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot be."""
        super().__post_init__()
        if (self.row is None) != (self.column is None):
            raise ValueError(
                f"row and column name a pixel together, got row {self.row} and column {self.column}"
            )
        check_seed(self.seed)


def run(arguments: Sequence[str]) -> int:
    """Draw what pixels were predicted from; raises UserError for what a user got wrong."""
    options, flags = read_options(
        Options,
        arguments,
        prog="triptych attend image",
        description="Sample a image and draw what its pixels were predicted from. Existing files "
        "are kept unless --overwrite is given.",
        flags={"overwrite": "Replace files of the same names in the output folder."},
    )
    path = check_checkpoint(options.checkpoint)
    out = check_output(options.out, [PICTURE, NUMBERS], overwrite="overwrite" in flags)

    model, _ = open_model(path, domain="image", device=options.device)

    from triptych.domains.image.attention import attend, check, spread_pixels
    from triptych.domains.image.draw_attention import draw

    task = model.task
    conditional = task.model.classes is not None
    height, width, _ = task.model.shape
    pixels = spread_pixels(height, width)
    if options.row is not None and options.column is not None:
        pixels = [(options.row, options.column)]
    check(task, pixels, layer=options.layer, head=options.head)  # before the image takes its time
    image = model.sample(
        1,
        seed=options.seed,
        label=options.label if conditional else None,
        progress=ProgressOnStderr("drawn positions"),
    )[0]
    layer = options.layer or task.config.model.n_layers
    maps = attend(
        task, image, pixels, label=options.label, layer=layer, head=options.head
    )  # [N, H, W]
    heads = "mean of all heads" if options.head is None else f"head {options.head}"
    title = f"layer {layer}, {heads}: what is read (red) to predict a pixel (blue)"
    write_whole(out / PICTURE, draw(image, model.levels, pixels, maps, title=title))
    write_json(
        out / NUMBERS,
        {
            "layer": layer,
            "head": options.head,
            "label": options.label if conditional else None,
            "image": image.tolist(),
            "pixels": [
                {"row": row, "column": column, "reads": shares.tolist()}
                for (row, column), shares in zip(pixels, maps, strict=True)
            ],
        },
    )
    print(f"{PICTURE} and {NUMBERS} are in {out}", file=sys.stderr)
    return 0
