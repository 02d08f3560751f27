"""Vectors of positions and of image levels, and relative logits."""

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from triptych.core.attention.backends.tiled import skewed
from triptych.core.attention.relative import Relative
from triptych.core.attention.relative_bias import logits_of_vectors
from triptych.core.embeddings import embedding_table, level_table
from triptych.core.positions import Sinusoidal, raster
from triptych.files.drawing import BLUE, COLOURS, RED, new_figure
from triptych.tools.explain.figure import figure

from ._drawing import matrix

POSITIONS, FEATURES = 50, 128
CURVES = (0, 4, 16, 32)
"""Features whose values are drawn over the positions."""
LEVELS, LEVEL_FEATURES = 64, 256
QUERIES, QUERY_FEATURES = 6, 8
"""Positions and features of the head whose relative logits are skewed."""


def encodings() -> NDArray[np.float64]:
    """Return the encoding of each position, as a model adds it: [50, 128]."""
    module = Sinusoidal().build(FEATURES, raster((POSITIONS,)))
    rows: NDArray[np.float64] = module(torch.arange(POSITIONS)).double().numpy()
    return rows


@figure()
def positions() -> Figure:
    """Sinusoidal encodings of 50 positions with 128 features (Vaswani et al. 2017, 3.5)."""
    values = encodings()
    drawing = new_figure(9.0, 5.6)
    upper, lower = drawing.subplots(2, 1, height_ratios=[1.9, 1])
    image = upper.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    drawing.colorbar(image, ax=[upper, lower], pad=0.01, aspect=40)
    upper.set(xlabel="feature", ylabel="position")
    upper.set_title("sin (even features) and cos (odd features) of position / 10000^(2i / 128)",
                    fontsize=10)  # fmt: skip
    for feature, colour in zip(CURVES, COLOURS, strict=False):
        lower.plot(values[:, feature], color=colour, label=f"feature {feature}", linewidth=1.4)
    lower.set(xlabel="position", ylabel="value", xlim=(0, POSITIONS - 1))
    lower.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncol=4)
    return drawing


def similarity(seed: int) -> dict[str, NDArray[np.float64]]:
    """Return the products of all pairs of level vectors, and of independent ones: [64, 64]."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tables = {
            "levels": level_table(LEVELS, 1, LEVEL_FEATURES),
            "tokens": embedding_table(LEVELS, LEVEL_FEATURES),
        }
    vectors = {name: table.weight.detach().double() for name, table in tables.items()}
    return {name: (rows @ rows.mT).numpy() for name, rows in vectors.items()}


@figure()
def levels(seed: int) -> Figure:
    """Similarity of the vectors of image levels at the start of training, by their distance."""
    title = f"products of the vectors of {LEVELS} levels, width {LEVEL_FEATURES}"
    drawing = new_figure(10.0, 3.2, title)
    *panels, last = drawing.subplots(1, 3)
    titles = ("levels of an image: random Fourier features", "tokens: independent vectors")
    drawn = zip(similarity(seed).items(), panels, titles, (BLUE, RED), strict=True)
    for (name, values), axes, title, colour in drawn:
        axes.imshow(values, cmap="RdBu_r", vmin=-1.2, vmax=1.2)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=7)
        last.plot(values[LEVELS // 2], color=colour, label=name)
    last.set(xlabel="level", ylabel=f"product with level {LEVELS // 2}")
    last.legend()
    return drawing


class Skewing(NamedTuple):
    """Relative logits of one head over a sequence of L positions."""

    queries: NDArray[np.float64]
    """[L, E]."""
    vectors: NDArray[np.float64]
    """Learned vector of each distance, from L - 1 down to 0: [L, E]."""
    by_distance: NDArray[np.float64]
    """Before: query . vector of the distance; column 0 has the largest distance: [L, L]."""
    by_key: NDArray[np.float64]
    """After: the same numbers with one column per key; those after the query have no meaning."""


def logits_before_and_after(seed: int) -> Skewing:
    """Return random queries, their logits for every distance, and these skewed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bias = Relative(max_distance=QUERIES - 1).relative_bias(1, QUERY_FEATURES, causal=True)
        bias = bias.double()
        q = torch.randn(1, 1, QUERIES, QUERY_FEATURES, dtype=torch.float64)  # [B, H, L, E]
    with torch.no_grad():
        vectors = bias.vectors(QUERIES - 1, 0)[:, 0]  # [H, L, E]
        by_distance = logits_of_vectors(q, vectors)[0]  # [H, L, L]
        by_key = skewed(by_distance.contiguous(), QUERIES)  # [H, L, L]
    tensors = (q[0, 0], vectors[0], by_distance[0], by_key[0].clone())
    return Skewing(*(tensor.numpy() for tensor in tensors))


@figure()
def skewing(seed: int) -> Figure:
    """Relative logits before and after skewing (Huang et al. 2018, Music Transformer, figure 1)."""
    logits = logits_before_and_after(seed)
    high = 1.3 * float(np.abs(logits.by_distance).max())
    drawing = new_figure(8.6, 4.2, "relative logits of 6 queries (rows): skewing moves each row so "
                         "that its last used number is on the diagonal")  # fmt: skip
    left, right = drawing.subplots(1, 2)
    row, column = np.indices((QUERIES, QUERIES))
    shared: dict[str, Any] = {"limits": (-high, high), "colours": "RdBu_r"}
    matrix(
        left,
        logits.by_distance,
        title="before: one column per distance",
        unused=column < QUERIES - 1 - row,  # keys before the sequence
        columns=[str(distance) for distance in reversed(range(QUERIES))],
        **shared,
    )
    left.set(xlabel="distance from the query to the key", ylabel="query")
    after = column > row  # keys after the query
    matrix(right, logits.by_key, title="after: one column per key", unused=after, **shared)
    right.set(xlabel="key", ylabel="query")
    return drawing
