"""`triptych sample image`: new pictures as PNG files, and a grid that shows all of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from triptych.commands.options import (
    check_checkpoint,
    check_output,
    check_sampling,
    counted,
    open_model,
    progress_on_stderr,
    read_options,
)


@dataclass(frozen=True)
class Options:
    """Options of `triptych sample image`."""

    checkpoint: str
    """Checkpoint file of an image model (.ckpt)."""
    out: str
    """Folder for grid.png and one PNG a picture; made where it is missing."""
    count: int = 16
    """Pictures to make."""
    seed: int = 0
    """Seed of the draw; the same seed gives the same pictures on the same device."""
    temperature: float = 1.0
    """Divides the logits (no unit): above 1 wilder, below 1 safer, 0 takes the likeliest."""
    top_k: int | None = None
    """Draw among the so many likeliest levels only; null for all."""
    top_p: float | None = None
    """Draw among the likeliest levels that reach this probability, 0 to 1; null for all."""
    label: int | None = None
    """Class to draw, a number from 0, where the model knows classes; null for each in turn."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:1."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot be drawn with."""
        check_sampling(self)


def run(arguments: Sequence[str]) -> int:
    """Sample pictures and say where they are; raises UserError for what a user got wrong."""
    options, flags = read_options(
        Options,
        arguments,
        prog="triptych sample image",
        description="Sample pictures. Existing files are kept unless --overwrite is given.",
        flags={"overwrite": "Replace files of the same names in the output folder."},
    )
    path = check_checkpoint(options.checkpoint)
    names = ["grid.png", *(f"sample-{index:04d}.png" for index in range(options.count))]
    out = check_output(options.out, names, overwrite="overwrite" in flags)

    model, _ = open_model(path, domain="image", device=options.device)
    pictures = model.sample(
        options.count,
        seed=options.seed,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        label=options.label,
        progress=progress_on_stderr("drawn positions"),
    )
    out.mkdir(parents=True, exist_ok=True)
    model.save_pictures(out, pictures)
    model.save_grid(out / "grid.png", pictures)
    made = counted(options.count, "picture", "pictures")
    print(f"{made} and grid.png are in {out}", file=sys.stderr)
    return 0
