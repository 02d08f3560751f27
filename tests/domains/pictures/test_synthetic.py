"""Images of known entropy: by enumeration, in the draws, and scored by a model that knows them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from noisy_sources import CopiedRows
from random_head import with_random_head
from torch import Tensor, nn

from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.image.config import Config
from triptych.domains.image.inference import ImageModel
from triptych.domains.image.model import ModelConfig
from triptych.domains.pictures.config import DataConfig
from triptych.errors import UserError

TINY = CopiedRows(
    height=2, width=2, levels=3, change=0.2, train_size=6, validation_size=60, test_size=5, seed=3
)


def probability(image: list[list[int]], source: CopiedRows) -> float:
    """By the sentence in the docstring, pixel by pixel."""
    found = 1.0
    for row, pixels in enumerate(image):
        for column, level in enumerate(pixels):
            if row == 0:
                found *= 1 / source.levels
            elif level == image[row - 1][column]:
                found *= 1 - source.change
            else:
                found *= source.change / (source.levels - 1)
    return found


def test_entropy_is_that_of_all_images() -> None:
    every = [
        probability([[a, b], [c, d]], TINY) for a, b, c, d in itertools.product(range(3), repeat=4)
    ]
    assert sum(every) == pytest.approx(1)
    bits = -sum(p * math.log2(p) for p in every) / 4
    assert TINY.entropy() == pytest.approx(bits, rel=1e-12)


def law_nats(split: str, limit: int | None = None) -> float:
    """The true nats of the images."""
    images = TINY.load(split).pixels.squeeze(-1).tolist()[:limit]
    return -sum(math.log(probability(image, TINY)) for image in images)


def test_the_draw_follows_the_law() -> None:
    source = CopiedRows(height=5, width=6, levels=4, change=0.25, train_size=4000)
    pixels = source.load("train").pixels.squeeze(-1).long()
    assert pixels.shape == (4000, 5, 6)

    def close(found: Tensor, share: float) -> bool:
        deviation = math.sqrt(share * (1 - share) / found.numel())
        return abs(found.double().mean().item() - share) < 4 * deviation

    step = (pixels[:, 1:] - pixels[:, :-1]) % 4
    for level in range(4):
        assert close(pixels[:, 0] == level, 0.25)
        assert close(step == level, 0.75 if level == 0 else 0.25 / 3)
    # Neighbours in a row, and two changes one above the other, know nothing of each other.
    assert close(pixels[:, 0, 1:] == pixels[:, 0, :-1], 0.25)
    assert close((step[:, 1:] != 0) & (step[:, :-1] != 0), 0.25**2)


class Perfect(nn.Module):
    """A model that knows the law of TINY."""

    def __init__(self) -> None:
        super().__init__()
        self.shape, self.levels, self.n_classes, self.factor = (2, 2, 1), 3, 0, None
        self.unused = nn.Parameter(torch.zeros(1))

    def nll(self, pixels: Tensor, labels: Tensor | None) -> Tensor:
        first, second = pixels.squeeze(-1).unbind(1)  # [B, 2]
        copied = torch.where(first == second, -math.log(0.8), -math.log(0.1))
        return torch.cat([torch.full_like(copied, math.log(3)), copied], 1)  # [B, 4]


@pytest.fixture
def model() -> ImageModel:
    sizes = TransformerConfig(n_layers=1, d_model=8, n_heads=1, feed_forward=GELU(8))
    config = Config(data=DataConfig(source=TINY), model=ModelConfig(sizes))
    vocabulary = TINY.load("train").vocabulary()
    return ImageModel.of_run(config, with_random_head(config.build_model(vocabulary)), vocabulary)


def test_a_perfect_model_scores_what_the_law_scores(model: ImageModel) -> None:
    config = Config(data=DataConfig(source=TINY))
    model = ImageModel.of_run(config, Perfect(), model.vocabulary)
    for limit in (None, 3):
        found = model.evaluate("test", limit=limit)
        n_dims = TINY.load("test").pixels[:limit].numel()
        expected = law_nats("test", limit) / n_dims / math.log(2)
        assert found.metrics["bits_per_dim"] == pytest.approx(expected, rel=1e-6)


def test_other_levels_are_refused_as_they_have_another_law() -> None:
    with pytest.raises(UserError, match="256 levels"):
        DataConfig(source=TINY, bits=2).read("test")
