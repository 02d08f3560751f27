"""Relative logits before and after skewing (Huang et al. 2018, Music Transformer, figure 1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.attention.backends.tiled import skewed
from triptych.core.attention.relative import Relative
from triptych.core.attention.relative_bias import logits_of_vectors
from triptych.files.drawing import new_figure, png
from triptych.tools.explain.drawing import matrix
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

LENGTH, WIDTH = 6, 8


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


def skewing(seed: int) -> Skewing:
    """Return random queries, their logits for every distance, and these skewed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bias = Relative(max_distance=LENGTH - 1).relative_bias(1, WIDTH, causal=True).double()
        q = torch.randn(1, 1, LENGTH, WIDTH, dtype=torch.float64)  # [B, H, L, E]
    with torch.no_grad():
        vectors = bias.vectors(LENGTH - 1, 0)[:, 0]  # [H, L, E]
        by_distance = logits_of_vectors(q, vectors)[0]  # [H, L, L]
        by_key = skewed(by_distance.contiguous(), LENGTH)  # [H, L, L]
    tensors = (q[0, 0], vectors[0], by_distance[0], by_key[0].clone())
    return Skewing(*(tensor.numpy() for tensor in tensors))


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the logits by distance and by key next to each other."""
    logits = skewing(options.seed)
    high = 1.3 * float(np.abs(logits.by_distance).max())
    figure = new_figure(8.6, 4.2, "relative logits of 6 queries (rows): skewing moves each row so "
                        "that its last used number is on the diagonal")  # fmt: skip
    left, right = figure.subplots(1, 2)
    row, column = np.indices((LENGTH, LENGTH))
    shared: dict[str, Any] = {"limits": (-high, high), "colours": "RdBu_r"}
    matrix(
        left,
        logits.by_distance,
        title="before: one column per distance",
        unused=column < LENGTH - 1 - row,  # keys before the sequence
        columns=[str(distance) for distance in range(LENGTH - 1, -1, -1)],
        **shared,
    )
    left.set(xlabel="distance from the query to the key", ylabel="query")
    matrix(
        right,
        logits.by_key,
        title="after: one column per key",
        unused=column > row,  # keys after the query
        **shared,
    )
    right.set(xlabel="key", ylabel="query")
    return {"skewing.png": png(figure)}


FIGURE = Figure(files=("skewing.png",), draw=draw, uses=("seed",))
