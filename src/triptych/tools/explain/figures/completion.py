"""The upper half of a digit, completed for several classes: known pixels and a class together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from triptych.domains.pictures.render import hide, in_colour, to_bytes
from triptych.files.drawing import new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure, example_label

N_CLASSES, COUNT = 5, 2
"""Classes that complete the image, and completions of each."""


class Completed(NamedTuple):
    """An image and completions of its upper half."""

    image: NDArray[np.uint8]
    """[H, W, C]."""
    filled: NDArray[np.bool_]
    """Pixels of the lower half: [H, W]."""
    by_class: dict[int | None, NDArray[np.uint8]]
    """Completions [COUNT, H, W, C] by class; None for a model without classes."""


def completed(options: ExplainOptions, model: Any) -> Completed:
    """Sample an image, and complete its upper half for its class and for the following ones."""
    n_classes = model.full_model.n_classes
    first = example_label(n_classes, options)
    image = model.sample(1, seed=options.seed, label=first)[0]  # [H, W, C]
    filled = np.zeros(image.shape[:2], dtype=bool)  # [H, W]
    filled[len(filled) // 2 :] = True
    if first is None:
        completions = model.complete(
            image[None], filled, COUNT, seed=options.seed
        )  # [1, COUNT, H, W, C]
        return Completed(image, filled, {None: completions[0]})
    labels = [(first + step) % n_classes for step in range(min(N_CLASSES, n_classes))]
    images = np.repeat(image[None], len(labels), axis=0)  # [N, H, W, C]
    completions = model.complete(images, filled, COUNT, labels=labels, seed=options.seed)
    return Completed(image, filled, dict(zip(labels, completions, strict=True)))


def draw(options: ExplainOptions, model: Any) -> Content:
    """Return the image, its upper half, and a column of completions for each class."""
    shown = completed(options, model)
    levels = model.full_model.levels
    columns = 2 + len(shown.by_class)
    figure = new_figure(1.1 * columns, 1.1 * COUNT + 0.4)
    panels = figure.subplots(COUNT, columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    image = in_colour(to_bytes(shown.image[None], levels))  # [1, H, W, 3]
    panels[0][0].imshow(image[0])
    panels[0][0].set_title("sampled", fontsize=9)
    panels[0][1].imshow(hide(image, shown.filled)[0])
    panels[0][1].set_title("given", fontsize=9)
    for column, (label, completions) in enumerate(shown.by_class.items(), start=2):
        title = "completed" if label is None else f"as class {label}"
        panels[0][column].set_title(title, fontsize=9)
        for row, shown in enumerate(in_colour(to_bytes(completions, levels))):
            panels[row][column].imshow(shown)
    return {"completion.png": png(figure)}


FIGURE = Figure(
    files=("completion.png",),
    draw=draw,
    domain="image",
    pretrained="pretrained:mnist",
    uses=("label", "seed"),
)
