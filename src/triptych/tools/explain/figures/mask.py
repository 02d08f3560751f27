"""The look-ahead mask of 5 positions: logits, mask, masked logits and weights with their values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.attention.full import Full
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.files.drawing import new_figure, png
from triptych.tools.explain.drawing import matrix
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

LENGTH, D_MODEL = 5, 16


class Masking(NamedTuple):
    """Matrices [query, key] of one head."""

    logits: NDArray[np.float64]
    """q k^T / sqrt(E)."""
    mask: NDArray[np.float64]
    """0 where the query sees the key, else minus infinity; as a decoding step adds it."""
    weights: NDArray[np.float64]
    """Softmax of their sum, as the layer computes it."""


def masking(seed: int) -> Masking:
    """Return the matrices of a layer of causal attention with random weights over random inputs."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = MultiHeadAttention(D_MODEL, 1, Full().mask_pattern((LENGTH,), causal=True))
    layer = layer.double().eval()
    x = torch.randn(1, LENGTH, D_MODEL, generator=generator, dtype=torch.float64) * 2.5
    with torch.no_grad():
        q, k, _ = layer.qkv_proj(x)[0].chunk(3, dim=-1)  # 3 x [L, E]
        logits = q @ k.mT / layer.d_head**0.5  # [L, L]
        weights = layer.weights(x)[0, 0]  # [L, L]
        cache = layer.init_cache(1, LENGTH)
        mask = layer.step_context(torch.arange(LENGTH), cache).mask  # [L, L]
    return Masking(logits.numpy(), mask.numpy(), weights.numpy())


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the four matrices next to each other."""
    matrices = masking(options.seed)
    figure = new_figure(11.0, 3.3, "query (row) and key (column); every query sees the keys up to "
                        "its own position")  # fmt: skip
    panels = figure.subplots(1, 4)
    high = float(np.abs(matrices.logits).max())
    signed: dict[str, Any] = {"limits": (-1.4 * high, 1.4 * high), "colours": "RdBu_r"}
    matrix(panels[0], matrices.logits, title="logits  q kᵀ / √E", **signed)
    matrix(
        panels[1], matrices.mask, title="+ mask", form="{:.0f}", limits=(-1, 1), colours="RdBu_r"
    )
    masked = matrices.logits + matrices.mask
    matrix(panels[2], masked, title="= before softmax", **signed)
    matrix(
        panels[3], matrices.weights, title="after softmax: each row adds up to 1", limits=(0, 1.1)
    )
    return {"mask.png": png(figure)}


FIGURE = Figure(files=("mask.png",), draw=draw, uses=("seed",))
