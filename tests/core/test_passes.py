"""What the passes of their own keep for their gradients, and that autocast changes nothing."""

from __future__ import annotations

import pytest
import torch
from autocast import assert_autocast_changes_nothing
from saved import saved_bytes
from torch import Tensor

from triptych.core.attention.backends import grid_tiles, passes, spans
from triptych.core.attention.backends import tiled as module
from triptych.core.attention.backends.grid import Blocks, hidden_keys
from triptych.core.attention.backends.grid_tiles import attend_in_blocks
from triptych.core.attention.backends.passes import to_keep
from triptych.core.attention.backends.spans import Reach, tiles_over
from triptych.core.attention.backends.tiled import attend_in_tiles
from triptych.core.attention.relative import Relative

CPU = torch.device("cpu")


def saved_by(length: int) -> int:
    """Bytes that a layer of relative attention saves for its backward pass."""
    layer = Relative(max_distance=length).build(8, 2, (length,), causal=True)
    x = torch.randn(1, length, 8, requires_grad=True)
    return saved_bytes(lambda: layer(x))


def test_what_is_kept_for_the_backward_pass_grows_with_the_length_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of L x L is saved beyond a fixed number of bytes."""
    monkeypatch.setattr(spans, "has_matrix_units", lambda: False)
    monkeypatch.setattr(passes, "KEPT", 0)
    without = {length: saved_by(length) for length in (256, 1024)}
    assert without[1024] < 4.5 * without[256]
    for length in without:
        monkeypatch.setattr(passes, "KEPT", 10**6)
        assert 0 < saved_by(length) - without[length] <= 10**6
    # Two heads, 256 queries, tiles of 64 that end at the diagonal.
    assert saved_by(256) - without[256] == 2 * 4 * 64 * (64 + 128 + 192 + 256)


@pytest.mark.parametrize(("room", "tiles"), [(0, 0), (1599, 0), (1600, 1), (4799, 2), (10**6, 4)])
def test_what_dropout_leaves_is_kept_too_and_counted(
    room: int, tiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One head, tiles of ten queries, in double: 800 bytes of weights a tile, and again dropped."""
    monkeypatch.setattr(passes, "KEPT", room)
    q, k, v = (torch.randn(1, 1, 40, 3).double().requires_grad_() for _ in range(3))
    given = sum(x.nbytes for x in (q, k, v))
    cut = tiles_over(Reach(before=0, run=10), 40, 10, CPU)
    saved = saved_bytes(lambda: attend_in_tiles(q, k, v, cut, dropout=0.5))
    assert saved - given == 2 * 800 * tiles


@pytest.mark.parametrize("path", ["tiles", "blocks"])
def test_parts_share_what_may_be_kept(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four heads, each by itself."""
    monkeypatch.setattr(grid_tiles if path == "blocks" else module, "room", lambda like: 1)
    q, k, v = (torch.randn(1, 4, 20, 3).double().requires_grad_() for _ in range(3))
    given = sum(x.nbytes for x in (q, k, v))
    blocks = Blocks(5, 4, 1, block_height=2, block_width=2, up=1, side=1)
    hidden = hidden_keys(blocks, torch.arange(20).view(5, 4, 1))
    mask = torch.zeros(hidden.shape).double().masked_fill(hidden, -1e9)
    cut = tiles_over(Reach(before=0, run=4), 20, 4, CPU)
    # Of a head: a tile of 4 x 4; a row of two blocks of 4 cells with windows of 3 x 4.
    of_one = 8 * (16 if path == "tiles" else 2 * 4 * 12)
    for each in (0, 2):
        monkeypatch.setattr(passes, "KEPT", 4 * (each * of_one + 7))
        monkeypatch.setattr(grid_tiles, "weights_to_keep", to_keep)
        if path == "tiles":
            saved = saved_bytes(lambda: attend_in_tiles(q, k, v, cut))
        else:
            saved = saved_bytes(lambda: attend_in_blocks(q, k, v, blocks, mask))
        assert saved - given == 4 * each * of_one


def test_nothing_is_kept_where_no_gradient_is_wanted_nor_on_a_gpu() -> None:
    q = torch.empty(1)
    assert to_keep(q) == passes.KEPT
    assert to_keep(q.to("meta")) == 0  # stands for any device but a CPU
    with torch.no_grad():
        assert to_keep(q) == 0


@pytest.mark.parametrize("kept", [0, 2**20])
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("inputs", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("path", ["tiles", "blocks"])
def test_autocast_changes_nothing(
    inputs: torch.dtype, path: str, within: bool, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the backward pass is called for within it or, as is usual, outside."""
    monkeypatch.setattr(passes, "KEPT", kept)
    monkeypatch.setattr(grid_tiles, "weights_to_keep", to_keep)
    tiles = tiles_over(Reach(), 20, 8, CPU)
    blocks = Blocks(5, 4, 1, block_height=2, block_width=2, up=1, side=1)
    hidden = hidden_keys(blocks, torch.arange(20).view(5, 4, 1))
    mask = torch.zeros(hidden.shape, dtype=inputs).masked_fill(hidden, -1e9)

    def gradients() -> list[Tensor]:
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 3, 20, 4, dtype=inputs, requires_grad=True) for _ in range(3))
        if path == "tiles":
            y = attend_in_tiles(q, k, v, tiles)
        else:
            y = attend_in_blocks(q, k, v, blocks, mask)
        with torch.autocast("cpu", enabled=within):
            return [y, *torch.autograd.grad(y.sum(), (q, k, v))]

    assert_autocast_changes_nothing(gradients, inputs)
