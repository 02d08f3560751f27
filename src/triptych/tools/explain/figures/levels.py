"""Similarity of the vectors of image levels at the start of training, by their distance."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.embeddings import embedding_table, level_table
from triptych.files.drawing import BLUE, RED, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

LEVELS, WIDTH = 64, 256


def similarity(seed: int) -> dict[str, NDArray[np.float64]]:
    """Return the products of all pairs of level vectors, and of independent ones: [64, 64]."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tables = {"levels": level_table(LEVELS, 1, WIDTH), "tokens": embedding_table(LEVELS, WIDTH)}
    vectors = {name: table.weight.detach().double() for name, table in tables.items()}
    return {name: (rows @ rows.mT).numpy() for name, rows in vectors.items()}


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the products as matrices, and those with the middle level as curves."""
    products = similarity(options.seed)
    figure = new_figure(10.0, 3.2, f"products of the vectors of {LEVELS} levels, width {WIDTH}")
    *panels, last = figure.subplots(1, 3)
    titles = {"levels": "levels of an image: random Fourier features",
              "tokens": "tokens: independent vectors"}  # fmt: skip
    for axes, (name, values) in zip(panels, products.items(), strict=True):
        axes.imshow(values, cmap="RdBu_r", vmin=-1.2, vmax=1.2)
        axes.set_title(titles[name], fontsize=9)
        axes.tick_params(labelsize=7)
    for (name, values), colour in zip(products.items(), (BLUE, RED), strict=True):
        last.plot(values[LEVELS // 2], color=colour, label=name)
    last.set(xlabel="level", ylabel=f"product with level {LEVELS // 2}")
    last.legend(fontsize=8, frameon=False)
    return {"levels.png": png(figure)}


FIGURE = Figure(files=("levels.png",), draw=draw, uses=("seed",))
