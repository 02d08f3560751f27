"""Blocks of pictures: gradients of dropped weights, and how much the backward pass has kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from triptych.core.attention.kernels import grid_tiles, tiles
from triptych.core.attention.kernels.dropout import Dropped
from triptych.core.attention.kernels.grid import Blocks, hidden_keys
from triptych.core.attention.kernels.grid_tiles import attend_in_blocks

BLOCKS = Blocks(5, 4, 1, block_height=2, block_width=2, up=1, side=1)  # 3 rows of 2 blocks
LENGTH = 20


def arguments() -> tuple[list[Tensor], Tensor]:
    """q, k, v of one picture and two heads, and the mask of raster order."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, LENGTH, 3).double().requires_grad_() for _ in range(3)]
    hidden = hidden_keys(BLOCKS, torch.arange(LENGTH).view(5, 4, 1))
    return inputs, torch.zeros(hidden.shape).double().masked_fill(hidden, -1e9)


@pytest.mark.parametrize("kept", [0, 4000, 2**20])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_those_of_finite_differences(
    kept: int, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, mask = arguments()
    drawn = Dropped.draw(dropout, 4, mask[0, 0].numel(), inputs[0])
    monkeypatch.setattr(grid_tiles.Dropped, "draw", lambda *_: drawn)
    monkeypatch.setattr(tiles, "KEPT", kept)  # of the rows' weights none, one or all

    def path(*inputs: Tensor) -> Tensor:
        return attend_in_blocks(*inputs, BLOCKS, mask, dropout=dropout)

    assert torch.autograd.gradcheck(path, inputs)


def test_the_backward_pass_is_kept_a_fixed_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, mask = arguments()

    def saved() -> int:
        total = 0

        def note(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            attend_in_blocks(*inputs, BLOCKS, mask)
        return total

    of_a_row = 2 * mask[0].numel() * mask.element_size()  # two heads
    monkeypatch.setattr(tiles, "KEPT", 0)
    without = saved()
    for kept, rows in ((of_a_row - 1, 0), (of_a_row, 1), (3 * of_a_row - 1, 2), (2**20, 3)):
        monkeypatch.setattr(tiles, "KEPT", 2 * kept)
        assert saved() - without == rows * of_a_row


def test_a_second_derivative_is_refused_and_never_wrong() -> None:
    inputs, mask = arguments()
    y = attend_in_blocks(*inputs, BLOCKS, mask)
    (dq,) = torch.autograd.grad((y**2).sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()
