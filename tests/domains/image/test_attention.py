"""Attention maps of image models: earlier values in the generation order, at their pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_image import tiny_image

from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.heads import Categorical, MixtureOfLogistics
from triptych.core.models.base import NO_CONDITION
from triptych.domains.image.domain import ImageAttentionOptions
from triptych.domains.image.inference import attention_blocks
from triptych.domains.pictures.render import PixelAttention, outline
from triptych.errors import UserError

HEIGHT, WIDTH, LEVELS = 6, 5, 7
PIXELS = [(0, 0), (2, 3), (5, 4)]


def model_of(attention, head=None, *, n_classes=0):
    """A random model in double precision."""
    shape = (HEIGHT, WIDTH, 3)
    model = tiny_image(
        shape, LEVELS, attention=attention, head=head, n_heads=3, n_classes=n_classes
    )
    model.full_model.double()
    return model


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, LEVELS, (HEIGHT, WIDTH, 3)).astype(np.uint8)


@pytest.mark.parametrize("head", [Categorical(), MixtureOfLogistics(components=2)])
@pytest.mark.parametrize("attention", [Full(), Local2D(2, 2, 1, 1, order="blocks")])
def test_a_map_holds_the_weights_of_each_earlier_pixel(attention, head, image):
    trained = model_of(attention, head)
    model, order = trained.full_model, trained.full_model.order
    maps = trained.attention(image, PIXELS, layer=1, head=2)
    assert maps.shape == (3, HEIGHT, WIDTH)
    values = model.to_sequence(torch.from_numpy(image).unsqueeze(0))
    block = model.core.decoder.blocks[0]
    with torch.no_grad():
        kept = model.conditioner.start(NO_CONDITION, *values.shape[:2])
        x, _ = model.core._inputs(values[:, :-1], None, kept)
        weights = block.attention.weights(block.attention_residual.norm(x))[0, 1].numpy()
    cells = order.coordinates.tolist()
    for (row, column), found in zip(PIXELS, maps, strict=True):
        step = cells.index([row, column, 0])
        by_hand = np.zeros((HEIGHT, WIDTH))
        for key in range(1, step + 1):
            by_hand[cells[key - 1][0], cells[key - 1][1]] += weights[step, key]
        assert found == pytest.approx(by_hand, abs=1e-12)
        assert found.sum() == pytest.approx(1 - weights[step, 0], abs=1e-12)
    mean = np.mean([trained.attention(image, PIXELS, layer=1, head=h) for h in (1, 2, 3)], axis=0)
    assert trained.attention(image, PIXELS, layer=1) == pytest.approx(mean, abs=1e-12)
    assert trained.attention(image, PIXELS) == pytest.approx(
        trained.attention(image, PIXELS, layer=2)
    )


def test_the_label_changes_the_maps(image):
    trained = model_of(Full(), n_classes=4)
    zero, three = (trained.attention(image, PIXELS, label=label) for label in (0, 3))
    assert np.abs(zero - three).max() > 1e-6
    assert trained.attention(image, PIXELS) == pytest.approx(zero)


@pytest.mark.parametrize("order", ["raster", "blocks"])
def test_blocks_are_those_of_the_mask_and_hold_all_weights(order, image):
    trained = model_of(Local2D(2, 3, 1, 1, order=order))
    every = [(row, column) for row in range(HEIGHT) for column in range(WIDTH)]
    maps = trained.attention(image, every, layer=1)
    memories = {}
    for (row, column), weights, (query, memory) in zip(
        every, maps, attention_blocks(trained.full_model, every), strict=True
    ):
        by_hand = np.zeros((HEIGHT, WIDTH), bool)
        by_hand[row // 2 * 2 :, column // 3 * 3 :][:2, :3] = True
        assert np.array_equal(query, by_hand)
        assert not weights[~memory].any()
        key = row // 2, column // 3
        memories.setdefault(key, memory)
        assert np.array_equal(memory, memories[key])  # one memory block for each query block
        seen = np.any([maps[i] > 0 for i, (r, c) in enumerate(every) if by_hand[r, c]], axis=0)
        assert not (seen & ~memory).any()
    assert memories[2, 1][3:6, 2:5].all()  # the halo above and to the left, and the block
    assert not memories[2, 1][:2].any()


def test_without_windows_the_query_block_is_the_pixel():
    ((query, memory),) = attention_blocks(model_of(Full()).full_model, [(2, 3)])
    assert np.argwhere(query).tolist() == [[2, 3]]
    assert memory.sum() == 2 * WIDTH + 3 + 1  # all earlier pixels, and the pixel's own channels


def test_an_outline_encloses_a_block():
    block = np.zeros((4, 5), bool)
    block[1:3, 2:5] = True
    edges = outline(block)
    assert len(edges) == 2 * (2 + 3)
    assert [(1.5, 0.5), (1.5, 1.5)] in edges
    assert [(3.5, 2.5), (4.5, 2.5)] in edges


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"row": 6, "column": 0},
            "no pixel in row 6 and column 0; the image has 6 rows and 5 columns",
        ),
        ({"row": 0, "column": -1}, "no pixel in row 0 and column -1"),
        ({"layer": 3}, "layer must be from 1 to 2"),
        ({"head": 4}, "head must be from 1 to 3"),
    ],
)
def test_missing_pixels_layers_and_heads_are_refused(options, says):
    wanted = ImageAttentionOptions(checkpoint="model.ckpt", out="folder", **options)
    with pytest.raises(UserError, match=says):
        model_of(Full()).write_attention(wanted, None)


def test_maps_are_drawn(image):
    pixels = [*PIXELS, *PIXELS]
    maps = model_of(Full()).attention(image, pixels)
    with Image.open(
        io.BytesIO(PixelAttention(image, LEVELS, pixels, maps, title="t").draw())
    ) as drawn:
        assert (drawn.format, drawn.size) == ("PNG", (900, 650))
    with Image.open(
        io.BytesIO(PixelAttention(image, LEVELS, pixels[:1], maps[:1]).draw())
    ) as drawn:
        assert drawn.size == (300, 350)
