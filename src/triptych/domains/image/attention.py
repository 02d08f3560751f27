"""Attention of an image model by pixel: the blocks of local attention, and the drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.domains.image.domain import ImageAttentionOptions
from triptych.domains.image.model import ImageTransformer
from triptych.domains.options import check_layer_and_head
from triptych.domains.pictures import render
from triptych.domains.pictures.render import Blocks
from triptych.files.results import OutputFolder
from triptych.training.engine.devices import device_of
from triptych.types import ProgressFactory

if TYPE_CHECKING:
    from triptych.domains.image.inference import ImageModel

Pixel = tuple[int, int]
"""Row and column, from 0."""


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
        memory_block = by_pixel(model, seen.unsqueeze(0))[0] > 0  # [H, W]
        blocks.append((query_block.cpu().numpy(), memory_block.numpy()))
    return blocks


def by_pixel(model: ImageTransformer, of_keys: Tensor) -> Tensor:
    """Return sums over the keys that hold a pixel's values: [N, L] -> float64 [N, H, W]."""
    by_value = F.pad(of_keys[:, 1:], (0, 1))  # [N, L], key t holds the value at t - 1
    return model.order.to_images(by_value).cpu().double().sum(-1)


def write_attention(
    trained: ImageModel, options: ImageAttentionOptions, out: OutputFolder, report: ProgressFactory
) -> str:
    """Sample an image and write the attention weights that predicted some of its pixels."""
    model, sizes, head = trained.full_model, trained.settings.model.transformer, options.head
    check_layer_and_head(options.layer, head, n_layers=sizes.n_layers, n_heads=sizes.n_heads)
    layer = options.layer or sizes.n_layers
    pixels = options.pixels(*model.shape[:2])
    label = options.label if model.n_classes else None
    progress = report("sampled positions")
    image = trained.sample(1, seed=options.seed, label=label, progress=progress)[0]  # [H, W, C]
    maps = trained.attention(image, pixels, label=label, layer=layer, head=head)
    title = (
        f"layer {layer}, {'mean of all heads' if head is None else f'head {head}'}: weights "
        "(red) of the prediction of a pixel (blue),\nquery block (solid) and memory block "
        "(dashed)"
    )
    return render.write_attention(
        out, image, model.levels, pixels, maps, title=title,
        blocks=attention_blocks(model, pixels),
        about={"layer": layer, "head": head, "label": label},
    )  # fmt: skip
