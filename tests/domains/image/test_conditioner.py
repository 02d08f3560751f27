"""What an image model's inputs have of the pixels above and of a small image."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from tiny_image import tiny_image

from triptych.core.attention.local2d import Local2D
from triptych.core.heads import Categorical, HeadConfig, MixtureOfLogistics
from triptych.core.positions import blocks, raster
from triptych.decoding.generate import generate
from triptych.decoding.sampling import Draft, SampleRequest, sample_value
from triptych.domains.image.conditioner import (
    NeighbourValues,
    PixelsAbove,
    SmallImage,
    Squares,
    transformed,
)
from triptych.types import Sampling

SHAPE, LEVELS = (4, 6, 3), 5


@pytest.mark.parametrize("whole_pixels", [False, True])
@pytest.mark.parametrize("block_order", [False, True])
@torch.no_grad()
def test_the_vectors_are_those_of_the_three_pixels_above(
    whole_pixels: bool, block_order: bool
) -> None:
    height, width, channels = SHAPE
    grid = (height, width, 1 if whole_pixels else channels)
    order = blocks(grid, 2, 3) if block_order else raster(grid)
    above = PixelsAbove(order, channels, LEVELS, d_model=7)
    above.table.weight.normal_()
    image = torch.randint(LEVELS, (2, *SHAPE))
    values = order.to_sequence(image.unsqueeze(3) if whole_pixels else image)
    vectors = above(values, torch.arange(order.length))  # [B, L, D]
    table = above.table.weight.view(3, channels, LEVELS, 7)
    for t, (row, column, _) in enumerate(order.coordinates.tolist()):
        expected = torch.zeros(2, 7)
        for n, beside in enumerate((column - 1, column, column + 1)):
            inside = row > 0 and 0 <= beside < width
            # In block order the pixel above to the right may come later.
            if inside and order.positions[row - 1, beside, -1] < t:
                for channel in range(channels):
                    expected += table[n, channel, image[:, row - 1, beside, channel]]
        torch.testing.assert_close(vectors[:, t], expected)


@pytest.mark.parametrize("block_order", [False, True])
def test_the_values_of_the_neighbours_are_those_of_the_image(block_order: bool) -> None:
    height, width, channels = SHAPE
    grid = (height, width, 1)
    order = blocks(grid, 2, 3) if block_order else raster(grid)
    neighbours = NeighbourValues(order, LEVELS)
    image = torch.randint(LEVELS, (2, *SHAPE))
    values = order.to_sequence(image.unsqueeze(3))  # [B, L, C]
    index = torch.arange(order.length)
    read = torch.cat([torch.full_like(values[:, :1], -1), values], dim=1)  # [B, 1 + L, C]
    found = neighbours(read[:, neighbours.read(index)], index).view(2, -1, 4, channels)
    for t, (row, column, _) in enumerate(order.coordinates.tolist()):
        places = [(row, column - 1), *((row - 1, column + step) for step in (-1, 0, 1))]
        for n, (above, beside) in enumerate(places):
            expected = torch.zeros(2, channels)
            inside = above >= 0 and 0 <= beside < width
            if inside and order.positions[above, beside, 0] < t:
                expected = image[:, above, beside] / 2 - 1  # 0..4 as -1..1
            torch.testing.assert_close(found[:, t, n], expected)


@pytest.mark.parametrize("whole_pixels", [False, True])
@pytest.mark.parametrize("block_order", [False, True])
@torch.no_grad()
def test_the_mean_of_the_remaining_pixels(whole_pixels: bool, block_order: bool) -> None:
    height, width, channels = SHAPE
    grid = (height, width, 1 if whole_pixels else channels)
    order = blocks(grid, 2, 3) if block_order else raster(grid)
    squares, index = Squares(order, 2, channels, LEVELS), torch.arange(order.length)
    image = torch.randint(LEVELS, (2, *SHAPE))
    # Not the true means: those of another image, as a user may give.
    small = torch.randint(LEVELS, (2, 2, 3, channels), dtype=torch.uint8)
    values = order.to_sequence(image.unsqueeze(3) if whole_pixels else image)
    past = squares.past(values, index)
    remaining = squares.remaining(past, index, small)
    reader = SmallImage(torch.nn.Identity(), squares, d_model=7)  # type: ignore[arg-type]
    reader.remaining.weight.normal_()
    vectors = reader.of_values(values, index, small)
    table = reader.remaining.weight.view(channels, LEVELS, 7)
    for t, (row, column, channel) in enumerate(order.coordinates.tolist()):
        r, c = row // 2, column // 2
        of_channels = range(channels) if whole_pixels else [channel]
        for n, at in enumerate(of_channels):
            rest, number = 4 * small[:, r, c, at].float(), 4
            for y, x in itertools.product((2 * r, 2 * r + 1), (2 * c, 2 * c + 1)):
                if order.positions[y, x, 0 if whole_pixels else at] < t:
                    rest, number = rest - image[:, y, x, at], number - 1
            mean = (rest / number).clamp(0, LEVELS - 1)
            torch.testing.assert_close(remaining[:, t, n], mean)
            vectors[:, t] -= table[at, mean.round().long()]
    torch.testing.assert_close(vectors, torch.zeros_like(vectors))


def test_the_mean_of_the_remaining_pixels_follows_the_neighbours() -> None:
    order = raster((*SHAPE[:2], 1))
    squares, index = Squares(order, 2, 3, LEVELS), torch.arange(order.length)
    neighbours = NeighbourValues(order, LEVELS, squares)
    values = torch.randint(LEVELS, (2, order.length, 3))
    small = torch.randint(LEVELS, (2, 2, 3, 3), dtype=torch.uint8)
    read = torch.cat([torch.full_like(values[:, :1], -1), values], dim=1)  # [B, 1 + L, C]
    found = neighbours(read[:, neighbours.read(index)], index, small)
    found = found.view(2, -1, neighbours.width, 3)  # [B, L, W, C]
    alone = NeighbourValues(order, LEVELS)
    expected = alone(read[:, alone.read(index)], index).view(2, -1, 4, 3)
    torch.testing.assert_close(found[:, :, :4], expected)
    means = squares.remaining(squares.past(values, index), index, small)  # [B, L, C]
    torch.testing.assert_close(found[:, :, 4], means / 2 - 1)  # 0..4 as -1..1


HEADS = [Categorical(), MixtureOfLogistics(2), MixtureOfLogistics(2, neighbours=True)]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("order", ["raster", "blocks"])
def test_cached_samples_are_those_of_teacher_forcing(head: HeadConfig, order: str) -> None:
    attention = Local2D(2, 3, 1, 1, order)  # type: ignore[arg-type]
    model = tiny_image(
        SHAPE, LEVELS, attention=attention, head=head, n_classes=2, pixels_above=True, sharp=True
    ).full_model.eval()
    assert model.conditioner.above is not None
    torch.nn.init.normal_(model.conditioner.above.table.weight)
    condition = model.condition(torch.tensor([0, 1, 1]))
    size = (3, model.order.length, *model.core.value_shape)
    values, generator = torch.zeros(size, dtype=torch.int64), torch.Generator().manual_seed(4)
    with torch.no_grad():
        for t in range(size[1]):
            parameters = model.core(values, condition=condition)[:, t]
            values[:, t] = sample_value(model.core.head, parameters, Sampling(), generator)
    request = SampleRequest(count=3, length=size[1], condition=condition, seed=4)
    assert torch.equal(generate(model.core, request), values)
    if isinstance(head, Categorical):
        assert torch.equal(generate(model.core, replace(request, draft=Draft(2, 3))), values)


@pytest.mark.parametrize("neighbours", [False, True])
def test_all_that_a_new_model_adds_is_zero(neighbours: bool) -> None:
    pixels = torch.randint(LEVELS, (2, *SHAPE), dtype=torch.uint8)
    plain = tiny_image(SHAPE, LEVELS, head=MixtureOfLogistics()).full_model
    head = MixtureOfLogistics(neighbours=neighbours)
    more = tiny_image(SHAPE, LEVELS, head=head, pixels_above=True).full_model
    if neighbours:  # the tests' heads are random, a new one is not
        for parameter in more.core.head.of_neighbours.parameters():  # type: ignore[union-attr]
            torch.nn.init.zeros_(parameter)
    added = set(more.state_dict()) - set(plain.state_dict())
    more.load_state_dict(plain.state_dict(), strict=False)
    of_head = {f"core.head.of_neighbours.{name}" for name in ("weight", "bias")}
    assert added == {"core.conditioner.above.table.weight"} | (of_head if neighbours else set())
    with torch.no_grad():
        torch.testing.assert_close(more.eval().nll(pixels), plain.eval().nll(pixels))


@torch.no_grad()
def test_a_position_has_the_vector_of_the_small_pixel_that_covers_it() -> None:
    model = tiny_image(SHAPE, LEVELS, factor=2, n_classes=2).full_model.eval()
    small = model.conditioner.small
    assert small is not None
    assert not small.aligned.weight.any()
    assert not small.remaining.weight.any()
    torch.nn.init.normal_(small.aligned.weight)
    pixels, labels = torch.randint(LEVELS, (1, 2, 3, 3), dtype=torch.uint8), torch.tensor([1])
    condition = model.condition(labels, pixels)
    assert condition.vectors is not None
    assert condition.memory is not None
    of_pixels = small.aligned(condition.memory.features).view(2, 3, -1)  # [h, w, D]
    assert model.conditioner.classes is not None
    for t, (row, column, _) in enumerate(model.order.coordinates.tolist()):
        expected = of_pixels[row // 2, column // 2] + model.conditioner.classes.weight[1]
        torch.testing.assert_close(condition.vectors[0, t], expected)


def test_the_eight_transformations_of_a_square() -> None:
    image = torch.arange(9).view(1, 3, 3, 1)
    which = torch.arange(8)
    images = transformed(image.expand(8, -1, -1, -1), which)[..., 0]  # [8, H, W]
    for number in range(8):
        expected = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
        if number & 1:
            expected = [row[::-1] for row in expected]
        if number & 2:
            expected = expected[::-1]
        if number & 4:
            expected = [list(column) for column in zip(*expected, strict=True)]
        assert images[number].tolist() == expected
    assert len({str(image.tolist()) for image in images}) == 8


def test_training_tells_the_model_how_images_were_transformed() -> None:
    trained = tiny_image((4, 4, 1), LEVELS, augmentation="square", n_classes=2)
    model, plain = trained.full_model, tiny_image((4, 4, 1), LEVELS, n_classes=2).full_model
    plain.load_state_dict(model.state_dict(), strict=False)
    told = model.conditioner.transformations
    assert told is not None
    torch.nn.init.normal_(told.weight[1:])
    pixels = torch.randint(LEVELS, (6, 4, 4, 1), dtype=torch.uint8)
    labels = torch.arange(6) % 2
    torch.manual_seed(3)
    images, drawn = model.augmented(pixels)
    features, values = model.features(images, labels, drawn)  # [B, L, D], [B, L]
    nll = model.core.head.losses(features, values)  # [B, L]
    torch.manual_seed(3)
    which = torch.randint(8, (6,))
    assert drawn is not None
    assert drawn.tolist() == which.tolist()
    assert len(which.unique()) > 2
    for row, number in enumerate(which.tolist()):
        one = slice(row, row + 1)
        turned = transformed(pixels[one], which[one])
        core, condition = model.core, plain.condition(labels[one])
        vectors = condition.vectors + told.weight[number]  # [1, 1, D]
        expected = core.nll(
            model.to_sequence(turned), condition=replace(condition, vectors=vectors)
        )
        torch.testing.assert_close(nll[one], expected)
    # Scores are of images as they are.
    torch.testing.assert_close(model.nll(pixels, labels), plain.nll(pixels, labels))
    nll.sum().backward()
    assert told.weight.grad is not None
    assert not told.weight.grad[0].any()


def test_only_square_images_can_be_turned() -> None:
    with pytest.raises(ValueError, match="4 by 6"):
        tiny_image(SHAPE, LEVELS, augmentation="square")
    tiny_image(SHAPE, LEVELS, augmentation="mirrored")
