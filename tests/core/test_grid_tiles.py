"""Blocks of pictures: gradients, of dropped weights too, and what is saved for them."""

from __future__ import annotations

import pytest
import torch
from saved import saved_bytes
from torch import Tensor

from triptych.core.attention.backends import grid_tiles
from triptych.core.attention.backends.dropout import Dropped
from triptych.core.attention.backends.grid import Blocks, hidden_keys
from triptych.core.attention.backends.grid_tiles import attend_in_blocks, weights_to_keep

BLOCKS = Blocks(5, 4, 1, block_height=2, block_width=2, up=1, side=1)  # 3 rows of 2 blocks
LENGTH = 20


def arguments() -> tuple[list[Tensor], Tensor]:
    """q, k, v of one picture and two heads, and the mask of raster order."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, LENGTH, 3).double().requires_grad_() for _ in range(3)]
    hidden = hidden_keys(BLOCKS, torch.arange(LENGTH).view(5, 4, 1))
    return inputs, torch.zeros(hidden.shape).double().masked_fill(hidden, -1e9)


def keep(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """So many bytes of weights may be kept for the backward pass."""
    monkeypatch.setattr(grid_tiles, "weights_to_keep", lambda like: most)


@pytest.mark.parametrize("kept", [0, 2000, 2**20])  # none, those of one row of blocks, all
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_those_of_finite_differences(
    dropout: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(monkeypatch, kept)
    inputs, mask = arguments()
    drawn = Dropped.draw(dropout, 4, mask[0, 0].numel(), inputs[0])
    monkeypatch.setattr(grid_tiles.Dropped, "draw", lambda *_: drawn)

    def path(*inputs: Tensor) -> Tensor:
        return attend_in_blocks(*inputs, BLOCKS, mask, dropout=dropout)

    assert torch.autograd.gradcheck(path, inputs)


def test_weights_are_saved_but_never_beyond_their_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs, mask = arguments()
    given = sum(tensor.nbytes for tensor in inputs)
    of_a_row = 2 * mask[0].nbytes  # two heads
    for room, rows in ((0, 0), (2000, 1), (3 * of_a_row - 1, 2), (2**20, 3)):
        keep(monkeypatch, room)
        saved = saved_bytes(lambda: attend_in_blocks(*inputs, BLOCKS, mask))
        assert saved - given == rows * of_a_row


@pytest.mark.parametrize("with_amx", [True, False])
def test_weights_are_saved_where_that_pays(with_amx: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_tiles, "has_matrix_units", lambda: with_amx)
    half = torch.empty(1, dtype=torch.bfloat16)
    assert (weights_to_keep(half) > 0) == with_amx
    assert weights_to_keep(half.float()) == 0
    assert weights_to_keep(half.to("meta")) == 0


def test_a_second_derivative_is_refused_and_never_wrong() -> None:
    inputs, mask = arguments()
    y = attend_in_blocks(*inputs, BLOCKS, mask)
    (dq,) = torch.autograd.grad((y**2).sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_gradients_asked_for_within_autocast_are_the_same() -> None:
    inputs, mask = arguments()
    single = [x.detach().float().requires_grad_() for x in inputs]
    y = attend_in_blocks(*single, BLOCKS, mask.float())
    wanted = torch.autograd.grad(y.sum(), single, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        seen = torch.autograd.grad(y.sum(), single)
    for one, other in zip(seen, wanted, strict=True):
        assert torch.equal(one, other)
