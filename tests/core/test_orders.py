from __future__ import annotations

import pytest
import torch

from triptych.core import positions as orders
from triptych.core.attention.local2d import Local2D

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
        assert torch.equal(order.positions[row, column, channel], torch.arange(order.length))


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_never_split_the_channels_of_a_pixel(shape: tuple[int, int, int]) -> None:
    channels = shape[2]
    for order in both_orders(shape):
        pixels = order.coordinates.view(-1, channels, 3)
        assert (pixels[:, :, :2] == pixels[:, :1, :2]).all()
        assert torch.equal(pixels[:, :, 2], torch.arange(channels).expand(len(pixels), -1))


def test_the_block_order_of_a_small_picture_by_hand() -> None:
    steps = orders.blocks((3, 4), 2, 2).positions[:, :, 0]
    assert steps.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 10, 11]]


def test_whole_pixels_keep_their_channels_together() -> None:
    order = orders.blocks((2, 4, 1), 2, 2)
    picture = torch.arange(24).view(1, 2, 4, 1, 3)
    sequence = order.to_sequence(picture)
    assert sequence.shape == (1, 8, 3)
    assert torch.equal(order.to_images(sequence), picture)


def test_index_tensors_follow_the_model_and_are_no_part_of_a_checkpoint() -> None:
    order = orders.blocks((4, 6, 3), 2, 3)
    assert not order.state_dict()
    sequence = order.to("meta").to_sequence(torch.zeros(2, 4, 6, 3, device="meta"))
    assert order.to_images(sequence).device.type == "meta"


def test_wrong_sizes_are_refused() -> None:
    order = orders.raster((2, 3, 1))
    with pytest.raises(ValueError, match=r"\(2, 3, 1\)"):
        order.to_sequence(torch.zeros(1, 3, 2, 1))  # height and width swapped


def local_2d_mask(order: str) -> torch.Tensor:
    config = Local2D(block_height=2, block_width=2, halo_up=1, halo_side=1, order=order)
    pattern = config.mask_pattern((4, 6), causal=True)
    steps = config.order_of((4, 6)).positions[:, :, 0]
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


def test_the_state_of_local_2d_does_not_grow_with_the_height() -> None:
    def slots(height: int) -> int:
        pattern = Local2D(4, 4, 2, 2).mask_pattern((height, 16, 3), causal=True)
        return pattern.layout.n_slots(height * 48)

    assert slots(64) == slots(8) == (4 + 2) * 16 * 3
