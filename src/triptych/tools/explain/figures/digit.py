"""Animation of an image: pixels in their order, and the distribution of the next one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.heads import CategoricalHead
from triptych.domains.image.attention_maps import Blocks, attention_blocks
from triptych.domains.pictures.render import BLOCK_LINES, hide, in_colour, outline, to_bytes
from triptych.files.drawing import BLUE, RED, new_figure
from triptych.tools.explain.drawing import animation
from triptych.tools.explain.figure import Content, ExplainOptions, Figure, example_label
from triptych.training.engine.evaluate import device_of, scoring

FRAMES = 40
"""Frames of the animation; an image of more pixels shows several more from frame to frame."""


class Frame(NamedTuple):
    """The image before one of its pixels is sampled."""

    pixel: tuple[int, int]
    """Row and column of the next pixel."""
    known: NDArray[np.bool_]
    """Pixels that were sampled before: [H, W]."""
    blocks: Blocks
    """Query block and memory block of the next pixel."""
    probabilities: NDArray[np.float64] | None
    """Of the levels of its first channel; None for a mixture of logistics."""


def frames(options: ExplainOptions, model: Any) -> tuple[NDArray[np.uint8], list[Frame]]:
    """Sample an image, and return it with what its frames show: uint8 [H, W, C]."""
    network = model.full_model
    label = example_label(network.n_classes, options)
    image = model.sample(1, seed=options.seed, label=label)[0]  # [H, W, C]
    position = network.order.positions[..., 0].cpu()  # [H, W], of each pixel's first channel
    ranked = position.flatten().argsort()
    count = min(FRAMES, len(ranked))
    chosen = [int(ranked[index * len(ranked) // count]) for index in range(count)]
    width = position.shape[1]
    pixels = [(cell // width, cell % width) for cell in chosen]
    probabilities = None
    if isinstance(network.core.head, CategoricalHead):
        with scoring(network):
            device = device_of(network)
            values = network.to_sequence(torch.from_numpy(image).to(device).unsqueeze(0))  # [1, L]
            labels = None if label is None else torch.tensor([label], device=device)
            logits = network.core(values, condition=network.condition(labels))[0]  # [L, V]
            probabilities = logits.softmax(-1).cpu().double().numpy()
    shown = []
    for pixel, blocks in zip(pixels, attention_blocks(network, pixels), strict=True):
        at = int(position[pixel])
        levels = None if probabilities is None else probabilities[at]
        shown.append(Frame(pixel, (position < at).numpy(), blocks, levels))
    return image, shown


def draw(options: ExplainOptions, model: Any) -> Content:
    """Return a GIF of the image as it is sampled."""
    image, shown = frames(options, model)
    scaled = to_bytes(image, model.full_model.levels)
    drawn = [draw_frame(scaled, frame) for frame in shown]
    last = shown[-1]._replace(known=np.ones_like(shown[-1].known))
    return {"digit.gif": animation([*drawn, draw_frame(scaled, last, end=True)], milliseconds=250)}


def draw_frame(image: NDArray[np.uint8], frame: Frame, *, end: bool = False) -> Any:
    """Draw the known pixels with the blocks of the next one, and its distribution."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    with_levels = frame.probabilities is not None
    figure = new_figure(5.6 if with_levels else 2.8, 2.6, fitted=False)
    panels = figure.subplots(1, 2 if with_levels else 1, squeeze=False)[0]
    figure.subplots_adjust(left=0.02, right=0.98, top=0.9, bottom=0.17, wspace=0.3)
    panels[0].imshow(in_colour(hide(image[None], ~frame.known))[0])
    panels[0].set_axis_off()
    row, column = frame.pixel
    if not end:
        for block, (style, _) in zip(frame.blocks, BLOCK_LINES, strict=True):
            panels[0].add_collection(
                LineCollection(outline(block), linestyle=style, colors="#ffcf4a", linewidth=1.2)
            )
        panels[0].add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=RED))
    if end and with_levels:
        panels[1].set_axis_off()
    elif frame.probabilities is not None:
        panels[1].stairs(frame.probabilities, fill=True, color=BLUE, baseline=1e-5)
        panels[1].set_title(f"row {row}, column {column}", fontsize=9)
        panels[1].set(yscale="log", ylim=(1e-4, 1.2), xlim=(-2, len(frame.probabilities) + 1))
        panels[1].set_xlabel("level of the next pixel (red)", fontsize=8)
        panels[1].set_ylabel("probability", fontsize=8)
        panels[1].minorticks_off()
        panels[1].tick_params(labelsize=7)
    return figure


FIGURE = Figure(
    files=("digit.gif",),
    draw=draw,
    domain="image",
    pretrained="pretrained:mnist",
    uses=("label", "seed"),
)
