"""What an image model reads to predict one pixel: the weights of attention over the image.

Step t of the model predicts value t of its order; its keys hold the values before, key t value
t - 1, and key 0 the start of the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from triptych.core.attention.capture import capture_attention
from triptych.domains.image.task import ImageTask
from triptych.errors import UserError
from triptych.training.attended import check_layer_and_head
from triptych.training.evaluate import scoring

Pixel = tuple[int, int]
"""Row and column, from 0."""


def spread_pixels(height: int, width: int) -> list[Pixel]:
    """Six pixels over the image, row by row, the upper left corner not among them."""
    return [(height * row // 6, width * column // 6) for row in (2, 4) for column in (1, 3, 5)]


def check(task: ImageTask, pixels: Sequence[Pixel], *, layer: int | None, head: int | None) -> None:
    """Raise UserError where the model has no such layer or head, or its images no such pixel."""
    settings = task.config.model.transformer
    check_layer_and_head(layer, head, n_layers=settings.n_layers, n_heads=settings.n_heads)
    height, width, _ = task.model.shape
    for row, column in pixels:
        if not (0 <= row < height and 0 <= column < width):
            raise UserError(
                f"there is no pixel in row {row} and column {column}; the image has {height} "
                f"rows and {width} columns, from 0"
            )


def attend(
    task: ImageTask,
    image: NDArray[np.uint8],
    pixels: Sequence[Pixel],
    *,
    label: int | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> NDArray[np.float64]:
    """What is read of each pixel to predict the first channel of some: [len(pixels), H, W].

    image: values [H, W, C]. label: its class, for a class-conditional model. layer: from 1, None
    for the last. head: from 1, None for the mean of all heads. What a map lacks to 1 is read of the
    image's start. Raises UserError where there is no such layer, head or pixel.
    """
    check(task, pixels, layer=layer, head=head)
    layer, model = task.config.model.transformer.n_layers if layer is None else layer, task.model
    device = task.device
    labels = None if model.classes is None else torch.tensor([label or 0], device=device)
    with scoring(task), capture_attention(model.core.decoder.blocks[layer - 1]) as found:
        model.nll(torch.from_numpy(image).to(device).unsqueeze(0), labels)
    steps = torch.stack([model.order.steps[row, column, 0] for row, column in pixels])  # [N]
    rows = found.own[0][0, :, steps.to(device)].cpu().double()  # [H, N, L]
    plane = rows.mean(0) if head is None else rows[head - 1]  # [N, L]
    # Key j holds value j - 1; the last value is nobody's key.
    read = F.pad(plane[:, 1:], (0, 1))  # [N, L]
    maps: NDArray[np.float64] = model.order.to_images(read).sum(-1).numpy()  # [N, H, W]
    return maps
