"""What a pixel was predicted from: values before it in the order, at their own places."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.feed_forward import GELU
from triptych.core.heads import Categorical, MixtureOfLogistics
from triptych.core.positions import Axial
from triptych.core.transformer import TransformerConfig
from triptych.domains.image.attention import attend, spread_pixels
from triptych.domains.image.draw_attention import draw
from triptych.domains.image.model import ModelConfig
from triptych.errors import UserError

HEIGHT, WIDTH, LEVELS = 6, 5, 7
PIXELS = [(0, 0), (2, 3), (5, 4)]


class Task(torch.nn.Module):
    """As much of an image task as is asked for."""

    def __init__(self, settings: ModelConfig, channels: int, n_classes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = settings.build(HEIGHT, WIDTH, channels, levels=LEVELS, n_classes=n_classes)
        self.config = type("Config", (), {"model": settings})
        self.device = torch.device("cpu")


def task_of(attention, head=None, *, channels=3, n_classes=0):
    settings = ModelConfig(
        TransformerConfig(
            n_layers=2,
            d_model=12,
            n_heads=3,
            feed_forward=GELU(16),
            attention=attention,
            positions=Axial(),
        ),
        head=head or Categorical(),
    )
    return Task(settings, channels, n_classes).double().eval()


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, LEVELS, (HEIGHT, WIDTH, 3)).astype(np.uint8)


@pytest.mark.parametrize("head", [Categorical(), MixtureOfLogistics(components=2)])
@pytest.mark.parametrize("attention", [Full(), Local2D(2, 2, 1, 1, order="blocks")])
def test_a_map_holds_what_was_read_of_each_pixel_before(attention, head, image):
    task = task_of(attention, head)
    model, order = task.model, task.model.order
    maps = attend(task, image, PIXELS, layer=1, head=2)
    assert maps.shape == (3, HEIGHT, WIDTH)
    values = model.to_sequence(torch.from_numpy(image).unsqueeze(0))
    block = model.core.decoder.blocks[0]
    with torch.no_grad():
        x = model.core._inputs(values[:, :-1], None, None, batch=1)
        weights = block.attention.weights(block.attention_residual.before(x))[0, 1].numpy()
    cells = order.coordinates.tolist()
    for (row, column), found in zip(PIXELS, maps, strict=True):
        step = cells.index([row, column, 0])
        by_hand = np.zeros((HEIGHT, WIDTH))
        for key in range(1, step + 1):
            by_hand[cells[key - 1][0], cells[key - 1][1]] += weights[step, key]
        assert found == pytest.approx(by_hand, abs=1e-12)
        assert found.sum() == pytest.approx(1 - weights[step, 0], abs=1e-12)
    mean = np.mean([attend(task, image, PIXELS, layer=1, head=h) for h in (1, 2, 3)], axis=0)
    assert attend(task, image, PIXELS, layer=1) == pytest.approx(mean, abs=1e-12)
    assert attend(task, image, PIXELS) == pytest.approx(attend(task, image, PIXELS, layer=2))


def test_the_class_is_told(image):
    task = task_of(Full(), n_classes=4)
    zero, three = (attend(task, image, PIXELS, label=label) for label in (0, 3))
    assert np.abs(zero - three).max() > 1e-6
    assert attend(task, image, PIXELS) == pytest.approx(zero)


@pytest.mark.parametrize(
    ("pixels", "options", "says"),
    [
        ([(6, 0)], {}, "no pixel in row 6 and column 0; the image has 6 rows and 5 columns"),
        ([(0, -1)], {}, "no pixel in row 0 and column -1"),
        ([(0, 0)], {"layer": 3}, "layer must be from 1 to 2"),
        ([(0, 0)], {"head": 4}, "head must be from 1 to 3"),
    ],
)
def test_what_is_not_there_is_told(image, pixels, options, says):
    with pytest.raises(UserError, match=says):
        attend(task_of(Full()), image, pixels, **options)


def test_pixels_are_spread_and_drawn(image):
    pixels = spread_pixels(HEIGHT, WIDTH)
    assert len(set(pixels)) == 6
    assert spread_pixels(28, 28)[0] == (9, 4)
    maps = attend(task_of(Full()), image, pixels)
    with Image.open(io.BytesIO(draw(image, LEVELS, pixels, maps, title="t"))) as drawn:
        assert (drawn.format, drawn.size) == ("PNG", (990, 715))
    with Image.open(io.BytesIO(draw(image, LEVELS, pixels[:1], maps[:1]))) as drawn:
        assert drawn.size == (330, 385)
