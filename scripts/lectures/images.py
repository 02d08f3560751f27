"""A shipped model of digits at work: pixel by pixel, and with known pixels and a class."""

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from triptych.core.heads import CategoricalHead
from triptych.domains.image.inference import attention_blocks
from triptych.domains.pictures.render import BLOCK_LINES, Blocks, hide, in_colour, outline, to_bytes
from triptych.files.drawing import BLUE, RED, new_figure
from triptych.tools.explain.figure import figure
from triptych.training.engine.devices import device_of, scoring

from ._drawing import animation

LABEL = 3
"""Example class."""
FRAMES = 40
"""Frames of the animation; an image of more pixels shows several more from frame to frame."""
N_CLASSES, COUNT = 5, 2
"""Classes that complete an image, and completions of each."""


def example_label(n_classes: int, label: int | None) -> int | None:
    """Return a class, by default an example; None for a model without classes.

    A class that the model does not have is returned as it is, and refused where it is sampled.
    """
    return label if label is not None or not n_classes else min(LABEL, n_classes - 1)


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


def frames(model: Any, label: int | None, seed: int) -> tuple[NDArray[np.uint8], list[Frame]]:
    """Sample an image, and return it with what its frames show: uint8 [H, W, C]."""
    network = model.full_model
    label = example_label(network.n_classes, label)
    image = model.sample(1, seed=seed, label=label)[0]  # [H, W, C]
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


@figure(".gif", domain="image")
def digit(model: Any, label: int | None, seed: int) -> bytes:
    """Animation of an image: pixels in their order, and the distribution of the next one."""
    image, shown = frames(model, label, seed)
    scaled = to_bytes(image, model.full_model.levels)
    last = shown[-1]._replace(known=np.ones_like(shown[-1].known))
    drawn = [draw_frame(scaled, frame) for frame in shown]
    return animation([*drawn, draw_frame(scaled, last, end=True)], milliseconds=250)


def draw_frame(image: NDArray[np.uint8], frame: Frame, *, end: bool = False) -> Figure:
    """Draw the known pixels with the blocks of the next one, and its distribution."""
    with_levels = frame.probabilities is not None
    drawing = new_figure(5.6 if with_levels else 2.8, 2.6, fitted=False)
    panels = drawing.subplots(1, 2 if with_levels else 1, squeeze=False)[0]
    drawing.subplots_adjust(left=0.02, right=0.98, top=0.9, bottom=0.17, wspace=0.3)
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
    return drawing


class Completed(NamedTuple):
    """An image and completions of its upper half."""

    image: NDArray[np.uint8]
    """[H, W, C]."""
    filled: NDArray[np.bool_]
    """Pixels of the lower half: [H, W]."""
    by_class: dict[int | None, NDArray[np.uint8]]
    """Completions [COUNT, H, W, C] by class; None for a model without classes."""


def completed(model: Any, label: int | None, seed: int) -> Completed:
    """Sample an image, and complete its upper half for its class and for the following ones."""
    n_classes = model.full_model.n_classes
    first = example_label(n_classes, label)
    image = model.sample(1, seed=seed, label=first)[0]  # [H, W, C]
    filled = np.zeros(image.shape[:2], dtype=bool)  # [H, W]
    filled[len(filled) // 2 :] = True
    labels = None
    if first is not None:
        labels = [(first + step) % n_classes for step in range(min(N_CLASSES, n_classes))]
    names: list[int | None] = [None] if labels is None else [*labels]
    images = np.repeat(image[None], len(names), axis=0)  # [N, H, W, C]
    completions = model.complete(images, filled, COUNT, labels=labels, seed=seed)
    return Completed(image, filled, dict(zip(names, completions, strict=True)))


@figure(domain="image")
def completion(model: Any, label: int | None, seed: int) -> Figure:
    """The upper half of a digit, completed for several classes: known pixels and a class."""
    result = completed(model, label, seed)
    levels = model.full_model.levels
    columns = 2 + len(result.by_class)
    drawing = new_figure(1.1 * columns, 1.1 * COUNT + 0.4)
    panels = drawing.subplots(COUNT, columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    image = in_colour(to_bytes(result.image[None], levels))  # [1, H, W, 3]
    panels[0][0].imshow(image[0])
    panels[0][0].set_title("sampled", fontsize=9)
    panels[0][1].imshow(hide(image, result.filled)[0])
    panels[0][1].set_title("given", fontsize=9)
    for column, (of_class, completions) in enumerate(result.by_class.items(), start=2):
        title = "completed" if of_class is None else f"as class {of_class}"
        panels[0][column].set_title(title, fontsize=9)
        for axes, one in zip(panels[:, column], completions, strict=True):
            axes.imshow(in_colour(to_bytes(one[None], levels))[0])
    return drawing
