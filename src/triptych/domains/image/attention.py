"""Attention of an image model: weights by pixel, and the blocks of local attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.cross import capture_attention
from triptych.domains.image.model import ImageTransformer
from triptych.domains.pictures.render import Blocks
from triptych.training.engine.devices import device_of, scoring

Pixel = tuple[int, int]
"""Row and column, from 0."""


def attention_maps(
    model: ImageTransformer,
    image: NDArray[np.uint8],
    pixels: Sequence[Pixel],
    *,
    label: int | None,
    layer: int,
    head: int | None,
) -> NDArray[np.float64]:
    """Return the attention weights of each predicted pixel, see `ImageModel.attention`."""
    device = device_of(model)
    labels = torch.tensor([label or 0]) if model.n_classes else None
    block, number = model.core.decoder.block_of(layer)
    with scoring(model), capture_attention(block) as captured:
        model.nll(torch.from_numpy(image).to(device).unsqueeze(0), labels)
    # Query t predicts value t of the order; key 0 holds the start vector.
    query = torch.stack([model.order.positions[row, col, 0] for row, col in pixels])  # [N]
    weights = captured.self_attention[number][0, :, query]  # [heads, N, L]
    images = _by_pixel(model, weights.flatten(0, 1))  # [heads N, H, W]
    images = images.view(-1, len(pixels), *images.shape[1:])  # [heads, N, H, W]
    maps: NDArray[np.float64] = (images.mean(0) if head is None else images[head - 1]).numpy()
    return maps


def attention_blocks(model: ImageTransformer, pixels: Sequence[Pixel]) -> list[Blocks]:
    """Return the query block and the memory block of each predicted pixel: bool [H, W] each.

    The query block has the pixels that share the predicted one's window of keys; without windows it
    is the pixel alone. The memory block (Parmar et al. 2018, section 3.3) has the pixels whose
    values some query of the block sees by the mask pattern, the block's own too.
    """
    pattern = model.core.decoder.blocks[0].attention.mask_pattern
    positions = torch.arange(model.order.length, device=device_of(model))  # [L]
    blocks = []
    for row, column in pixels:
        queries = model.order.positions[row, column]  # [C]
        if pattern.windows is not None:
            number = pattern.windows.block_of(positions)  # [L]
            queries = positions[number == number[queries[0]]]  # [Q]
        seen = pattern.visible(queries.unsqueeze(1), positions).any(0)  # [L]
        of_queries = torch.zeros_like(seen).index_fill_(0, queries, True)  # [L]
        query_block = model.order.to_images(of_queries.unsqueeze(0))[0].any(-1)  # [H, W]
        memory_block = _by_pixel(model, seen.unsqueeze(0))[0] > 0  # [H, W]
        blocks.append((query_block.cpu().numpy(), memory_block.numpy()))
    return blocks


def _by_pixel(model: ImageTransformer, of_keys: Tensor) -> Tensor:
    """Return sums over the keys that hold a pixel's values: [N, L] -> float64 [N, H, W]."""
    by_value = F.pad(of_keys[:, 1:], (0, 1))  # [N, L], key t holds the value at t - 1
    return model.order.to_images(by_value).cpu().double().sum(-1)
