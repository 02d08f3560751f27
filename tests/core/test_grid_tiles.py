"""Blocks of pictures: gradients, of dropped weights too, and what is saved for them."""

from __future__ import annotations

import pytest
import torch
from saved import saved_bytes
from torch import Tensor

from triptych.core.attention.kernels import grid_tiles
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


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_those_of_finite_differences(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, mask = arguments()
    drawn = Dropped.draw(dropout, 4, mask[0, 0].numel(), inputs[0])
    monkeypatch.setattr(grid_tiles.Dropped, "draw", lambda *_: drawn)

    def path(*inputs: Tensor) -> Tensor:
        return attend_in_blocks(*inputs, BLOCKS, mask, dropout=dropout)

    assert torch.autograd.gradcheck(path, inputs)


def test_nothing_is_saved_but_what_was_given() -> None:
    inputs, mask = arguments()
    saved = saved_bytes(lambda: attend_in_blocks(*inputs, BLOCKS, mask))
    assert saved == sum(tensor.nbytes for tensor in inputs)


def test_a_second_derivative_is_refused_and_never_wrong() -> None:
    inputs, mask = arguments()
    y = attend_in_blocks(*inputs, BLOCKS, mask)
    (dq,) = torch.autograd.grad((y**2).sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()
