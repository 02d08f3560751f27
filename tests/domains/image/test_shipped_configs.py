"""Every shipped YAML goes through the real parser and builds a model that samples an image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from triptych.config.schema import from_plain
from triptych.core.layers import GELU
from triptych.domains.image.config import Config
from triptych.domains.image.model import ImageTransformer

CONFIGS = sorted((Path(__file__).resolve().parents[3] / "configs" / "image").glob("*.yaml"))
SHAPES = {
    "digits": (8, 8, 1),
    "digits-super-resolution": (8, 8, 1),
    "copied-rows": (8, 8, 1),
    "mnist": (28, 28, 1),
    "mnist-small": (28, 28, 1),
    "mnist-logistics": (28, 28, 1),
    "mnist-super-resolution": (28, 28, 1),
    "folder": (32, 32, 3),
}
LEVELS = {"digits": 17, "digits-super-resolution": 17}


def plain(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_config_is_complete_and_builds(path: Path) -> None:
    content = plain(path)
    trainer = content.pop("trainer")
    assert trainer["max_steps"] > 0
    config = from_plain(Config, content)
    assert config.run.name == f"image/{path.stem}"
    levels = LEVELS.get(path.stem, 2 ** (config.data.bits or 8))
    # One narrow layer: what is asked is whether attention, head and shape go together.
    transformer = replace(
        config.model.transformer, n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(16)
    )
    small = replace(config.model, transformer=transformer)
    shape = SHAPES.get(path.stem, (32, 32, 3))
    model = ImageTransformer(small, shape, levels=levels, n_classes=10)
    images = torch.randint(0, levels, (1, *shape), dtype=torch.uint8)
    nats = model.nll(images, torch.tensor([3]))
    assert nats.shape == (1, model.order.length)
    assert torch.isfinite(nats).all()
    assert torch.equal(model.to_images(model.to_sequence(images)), images)
