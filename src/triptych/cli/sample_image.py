"""`triptych sample image`: new images as PNG files, and a grid that shows all of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from triptych.cli.options import (
    ProgressOnStderr,
    check_checkpoint,
    check_output,
    counted,
    open_model,
    read_options,
)
from triptych.cli.shared_options import SamplingOptions


@dataclass(frozen=True, kw_only=True)
class Options(SamplingOptions):
    """Options of `triptych sample image`."""

    out: str
    """Folder for grid.png and one PNG a image; made where it is missing."""
    count: int = 16
    """Images to make."""
    label: int | None = None
    """Class to draw, a number from 0, where the model knows classes; null for each in turn."""


def run(arguments: Sequence[str]) -> int:
    """Sample images and say where they are; raises UserError for what a user got wrong."""
    options, flags = read_options(
        Options,
        arguments,
        prog="triptych sample image",
        description="Sample images. Existing files are kept unless --overwrite is given.",
        flags={"overwrite": "Replace files of the same names in the output folder."},
    )
    path = check_checkpoint(options.checkpoint)
    names = ["grid.png", *(f"sample-{index:04d}.png" for index in range(options.count))]
    out = check_output(options.out, names, overwrite="overwrite" in flags)

    model, _ = open_model(path, domain="image", device=options.device)
    images = model.with_dtype(options.dtype).sample(
        options.count,
        label=options.label,
        progress=ProgressOnStderr("drawn positions"),
        **options.drawing(),
    )
    out.mkdir(parents=True, exist_ok=True)
    model.save_images(out, images)
    model.save_grid(out / "grid.png", images)
    made = counted(options.count, "image", "images")
    print(f"{made} and grid.png are in {out}", file=sys.stderr)
    return 0
