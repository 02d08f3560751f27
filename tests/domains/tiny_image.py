"""Small random models of images."""

from __future__ import annotations

from typing import Any

import torch
from random_head import with_random_head

from triptych.core.attention.full import Full
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.heads import Categorical, HeadConfig
from triptych.core.layers import GELU
from triptych.core.positions import Axial, PositionConfig
from triptych.core.transformer import TransformerConfig
from triptych.domains.image.config import Config
from triptych.domains.image.inference import ImageModel
from triptych.domains.image.model import (
    Augmentation,
    ImageTransformer,
    ModelConfig,
    SuperResolution,
)
from triptych.domains.pictures.config import DataConfig

NAMES = ["a", "b", "c", "d"]


def tiny_image(
    shape: tuple[int, int, int],
    levels: int,
    *,
    attention: AttentionConfig | None = None,
    head: HeadConfig | None = None,
    positions: PositionConfig | None = None,
    n_layers: int = 2,
    n_heads: int = 2,
    width: int = 12,
    n_classes: int = 0,
    factor: int | None = None,
    pixels_above: bool = False,
    augmentation: Augmentation | None = None,
    sharp: bool = False,
    **data: Any,
) -> ImageModel:
    """A random model. factor: of super-resolution. sharp: with a distribution far from uniform."""
    torch.manual_seed(0)
    transformer = TransformerConfig(
        n_layers=n_layers, d_model=width, n_heads=n_heads, dropout=0.0, feed_forward=GELU(16),
        attention=attention or Full(), positions=positions or Axial(),
    )  # fmt: skip
    config = ModelConfig(
        transformer, head or Categorical(), class_conditional=n_classes > 0,
        super_resolution=SuperResolution(factor, n_layers=1), pixels_above=pixels_above,
        augmentation=augmentation,
    )  # fmt: skip
    model = with_random_head(ImageTransformer(config, shape, levels=levels, n_classes=n_classes))
    with torch.no_grad():
        for parameter in model.core.head.parameters():
            parameter.mul_(3 if sharp else 1)
    settings = Config(model=config, data=DataConfig(**data))
    return ImageModel.of_run(settings, model, {"class_names": NAMES[:n_classes]})
