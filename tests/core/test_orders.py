from __future__ import annotations

import pytest
import torch

from triptych.core import generation_order as orders
from triptych.core.attention.backends.grid import Blocks, Grid
from triptych.core.attention.local2d import Local2D, Local2DPattern

SHAPES = [(4, 6, 3), (5, 7, 1), (7, 5, 2), (1, 9, 1)]


def both_orders(shape: tuple[int, int, int]) -> list[orders.GenerationOrder]:
    return [orders.raster(shape), orders.blocks(shape, 2, 3), orders.blocks(shape, 4, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_picture_comes_back_from_its_sequence(shape: tuple[int, int, int]) -> None:
    picture = torch.arange(2 * orders.raster(shape).length).view(2, *shape)
    for order in both_orders(shape):
        sequence = order.to_sequence(picture)
        assert torch.equal(order.to_images(sequence), picture)
        row, column, channel = order.coordinates.unbind(-1)
        assert torch.equal(sequence, picture[:, row, column, channel])
        assert torch.equal(order.steps[row, column, channel], torch.arange(order.length))


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_never_split_the_channels_of_a_pixel(shape: tuple[int, int, int]) -> None:
    channels = shape[2]
    for order in both_orders(shape):
        pixels = order.coordinates.view(-1, channels, 3)
        assert (pixels[:, :, :2] == pixels[:, :1, :2]).all()
        assert torch.equal(pixels[:, :, 2], torch.arange(channels).expand(len(pixels), -1))


def test_the_block_order_of_a_small_picture_by_hand() -> None:
    steps = orders.blocks((3, 4), 2, 2).steps[:, :, 0]
    assert steps.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 10, 11]]


def test_whole_pixels_keep_their_channels_together() -> None:
    order = orders.blocks((2, 4, 1), 2, 2)
    picture = torch.arange(24).view(1, 2, 4, 1, 3)
    sequence = order.to_sequence(picture)
    assert sequence.shape == (1, 8, 3)
    assert torch.equal(order.to_images(sequence), picture)


def test_wrong_sizes_are_refused() -> None:
    order = orders.raster((2, 3, 1))
    with pytest.raises(ValueError, match=r"\(2, 3, 1\)"):
        order.to_sequence(torch.zeros(1, 3, 2, 1))  # height and width swapped
    with pytest.raises(ValueError, match="6 steps"):
        order.to_images(torch.zeros(1, 5))
    with pytest.raises(ValueError, match="same rank"):
        orders.GenerationOrder(torch.zeros(1, 2, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="one to three axes"):
        orders.grid_shape((1, 2, 3, 4))


def local_2d_mask(order: str) -> torch.Tensor:
    config = Local2D(block_height=2, block_width=2, up=1, side=1, order=order)
    pattern = Local2DPattern(config.order_of((4, 6)), block=(2, 2), up=1, side=1)
    steps = config.order_of((4, 6)).steps[:, :, 0]
    query = steps[3, 2]  # lower left pixel of the block in rows 2-3, columns 2-3
    return pattern.visible(query, steps).long()


def test_what_a_pixel_sees_by_hand() -> None:
    # Band above with its top right, left band of rows already done, the block so far; in raster
    # order the right band above the current row too, in block order never the right band.
    assert local_2d_mask("raster").tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 0, 0, 0],
    ]
    assert local_2d_mask("blocks").tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 1, 1, 0, 0, 0],
    ]


def test_the_cost_of_local_2d_grows_with_the_pixels() -> None:
    def logits(side: int) -> int:
        blocks = Local2D(4, 4, 2, 2).build(4, 1, (side, side, 3), causal=True).pattern.blocks
        return blocks.n_pairs

    assert logits(32) == 4 * logits(16)


def test_the_state_of_local_2d_does_not_grow_with_the_height() -> None:
    def slots(height: int) -> int:
        layer = Local2D(4, 4, 2, 2).build(4, 1, (height, 16, 3), causal=True)
        return layer.init_cache(1, height * 48)["key"].shape[2]

    assert slots(64) == slots(8) == (4 + 2) * 16 * 3


def test_small_pictures_take_full_attention_under_a_mask_and_large_ones_blocks() -> None:
    def in_blocks(*shape: int) -> bool:
        return bool(Local2D(8, 8, 4, 4).build(4, 1, shape, causal=True).pattern.in_blocks)

    assert not in_blocks(8, 8)
    assert not in_blocks(16, 16, 3)
    assert in_blocks(24, 24, 3)
    assert in_blocks(28, 28)


CUTS = [(6, 23, 2, 3, 8, 2, 4), (5, 7, 1, 2, 3, 3, 1), (4, 9, 2, 4, 2, 0, 5), (3, 8, 1, 2, 4, 5, 0)]


@pytest.mark.parametrize("sizes", CUTS)
def test_windows_are_a_block_and_its_halo(sizes: tuple[int, ...]) -> None:
    blocks = Blocks(*sizes)
    grid = Grid(blocks)
    cells = torch.arange(1, blocks.height * blocks.width * blocks.channels + 1)
    picture = cells.view(blocks.height, blocks.width, blocks.channels)
    strips = grid.strips(cells.view(1, 1, -1, 1))
    for row in range(blocks.rows):
        windows = grid.keys(strips, row).squeeze(-1)  # [columns, K]
        for column in range(blocks.columns):
            top = row * blocks.block_height - blocks.up
            left = column * blocks.block_width - blocks.side
            wanted = [
                picture[y, x].tolist()
                if 0 <= y < blocks.height and 0 <= x < blocks.width
                else [0] * blocks.channels
                for y in range(top, top + blocks.up + blocks.block_height)
                for x in range(left, left + blocks.block_width + 2 * blocks.side)
            ]
            assert windows[column].view(-1, blocks.channels).tolist() == wanted


@pytest.mark.parametrize("sizes", CUTS)
def test_what_windows_give_back_is_the_transpose_of_reading_them(sizes: tuple[int, ...]) -> None:
    """Of more features too, as heads that lie side by side have: <windows x, g> = <x, back g>."""
    torch.manual_seed(0)
    blocks = Blocks(*sizes)
    grid = Grid(blocks)
    x = torch.randn(2, 3, blocks.height * blocks.width * blocks.channels, 2, 4).double()
    strips = grid.strips(x)
    back = torch.full_like(strips, torch.nan)  # nothing is read before it is filled
    there = torch.zeros(()).double()
    for row in range(blocks.rows):
        windows = grid.keys(strips, row)
        gradient = torch.randn_like(windows)
        there += (windows * gradient).sum()
        grid.add_keys(back, gradient, row)
    total = torch.empty_like(x)
    grid.put(total, back)
    torch.testing.assert_close((x * total).sum(), there)
