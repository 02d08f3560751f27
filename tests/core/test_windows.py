"""Windows of local 2-D attention: their cells, masks and cost."""

from __future__ import annotations

import pytest
import torch

from triptych.core import positions as orders
from triptych.core.attention.backends import dispatch
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D, Local2DPattern
from triptych.core.attention.mask import Windows

# Height, width, channels; height and width of a block; halo up and to the sides.
CUTS = [(6, 23, 2, 3, 8, 2, 4), (5, 7, 1, 2, 3, 3, 1), (4, 9, 2, 4, 2, 0, 5), (3, 8, 1, 2, 4, 5, 0)]


def pattern_of(sizes: tuple[int, ...], order: str) -> tuple[Local2DPattern, Windows]:
    *shape, block_height, block_width, up, side = sizes
    wrapped = order == "wrapped"
    order = "raster" if wrapped else order
    config = Local2D(block_height, block_width, up, side, order, wrapped)  # type: ignore[arg-type]
    pattern = config.mask_pattern(tuple(shape), causal=True)
    assert isinstance(pattern, Local2DPattern)
    assert pattern.windows is not None
    return pattern, pattern.windows


@pytest.mark.parametrize("order", ["raster", "blocks"])
@pytest.mark.parametrize("sizes", CUTS)
def test_windows_are_a_block_and_its_halo(sizes: tuple[int, ...], order: str) -> None:
    height, width, channels, block_height, block_width, up, side = sizes
    pattern, windows = pattern_of(sizes, order)
    n = windows.n_blocks
    blocks, keys = windows.query.view(n, -1), windows.key.view(n, -1)
    columns = -(-width // block_width)
    for number in range(n):
        top, left = number // columns * block_height, number % columns * block_width
        for positions, above, beside, rows, cells in (
            (blocks[number], 0, 0, block_height, block_width),
            (keys[number], up, side, block_height + up, block_width + 2 * side),
        ):
            found = positions.view(rows, cells, channels)
            for row in range(rows):
                for column in range(cells):
                    y, x = top - above + row, left - beside + column
                    if 0 <= y < height and 0 <= x < width:
                        assert (pattern.row[found[row, column]] == y).all()
                        assert (pattern.column[found[row, column]] == x).all()


@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        (sizes, order)
        for sizes in CUTS
        for order in ("raster", "blocks", "wrapped")
        if order != "wrapped" or sizes[-1]
    ],
)
def test_windows_hold_exactly_the_visible_pairs(sizes: tuple[int, ...], order: str) -> None:
    """Over every pair of positions, each one once."""
    pattern, windows = pattern_of(sizes, order)
    n, length = windows.n_blocks, len(windows.cell)
    blocks, keys = windows.query.view(n, -1), windows.key.view(n, -1)
    seen = torch.zeros(length, length, dtype=torch.int64)
    for position, cell in enumerate(windows.cell.tolist()):
        block, place = divmod(cell, blocks.shape[1])
        assert blocks[block, place] == position
        seen[position].index_add_(0, keys[block], windows.mask[block, place].long())
    position = torch.arange(length)
    assert torch.equal(seen, pattern.visible(position.unsqueeze(1), position).long())


@pytest.mark.parametrize("shape", [(28, 28, 1), (9, 23, 3), (6, 10, 1)])
def test_every_pixel_reads_the_one_above_it(shape: tuple[int, int, int]) -> None:
    """The key that holds a value is the one after the value's position."""
    for order, missing in (("wrapped", 0), ("raster", shape[0] - 1)):
        pattern, _ = pattern_of((*shape, 4, 7, 2, 2), order)
        row = shape[1] * shape[2]
        position = torch.arange(row, shape[0] * row)
        assert (~pattern.visible(position, position - row + 1)).sum() == missing


def test_windows_serve_where_they_halve_the_pairs() -> None:
    def pay(*shape: int) -> bool:
        pattern = Local2D(8, 8, 4, 4).mask_pattern(shape, causal=True)
        assert pattern.windows is not None
        return dispatch.windows_pay(pattern.windows, orders.raster(shape).length)

    assert not pay(8, 8)
    assert not pay(16, 16, 3)
    assert pay(24, 24, 3)
    assert pay(28, 28)


@pytest.mark.parametrize("causal", [False, True])
def test_short_sequences_in_bfloat16_have_gradients_of_float32(causal: bool) -> None:
    """The kernel's own bfloat16 gradient of a short sequence is slow on a CPU, and rounds more."""
    pattern = Full().mask_pattern((13,), causal=causal)
    upstream = torch.randn(3, 2, 13, 16, dtype=torch.bfloat16)
    inputs = torch.randn(3, 3, 2, 13, 16, dtype=torch.bfloat16)
    real = torch.arange(13) < torch.tensor([[13], [5], [9]])
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        qkv = inputs.to(dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            y = dispatch.attend(pattern, None, *qkv, real=real)
        assert y.dtype == dtype
        gradients += torch.autograd.grad(y, qkv, upstream.to(dtype))
    assert torch.equal(gradients[1], gradients[0].bfloat16())
