"""The tiles that long sequences are cut into: covered pairs, skews, dropout, memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from triptych.core.attention.backends import grid_tiles, passes, spans
from triptych.core.attention.backends import tiled as module
from triptych.core.attention.backends.dropout import Dropped
from triptych.core.attention.backends.grid import Blocks, hidden_keys
from triptych.core.attention.backends.grid_tiles import attend_in_blocks
from triptych.core.attention.backends.skew import Distances, skewed, unskewed
from triptych.core.attention.backends.spans import Reach, queries_per_tile, tiles_over
from triptych.core.attention.backends.tiled import attend_in_tiles

CPU = torch.device("cpu")
REACHES = [
    Reach(),
    Reach(before=None, after=None),
    Reach(before=4),
    Reach(before=0),
    Reach(before=5, after=5),
    Reach(before=2, after=None),
    Reach(before=3, run=6),
    Reach(before=0, run=4),
]


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("queries", [1, 3, 8, 100])
def test_tiles_hold_exactly_the_visible_pairs(reach: Reach, queries: int) -> None:
    length = 23
    seen = torch.zeros(length, length, dtype=torch.int64)
    for tile in tiles_over(reach, length, queries, CPU):
        assert tile.stop - tile.first <= queries
        pairs = torch.ones(tile.stop - tile.first, tile.end - tile.start, dtype=torch.int64)
        for edge in tile.edges:
            pairs[:, edge.first : edge.first + edge.hidden.shape[1]].masked_fill_(edge.hidden, 0)
        seen[tile.first : tile.stop, tile.start : tile.end] += pairs
    position = torch.arange(length)
    wanted = reach.visible(position.unsqueeze(1), position)
    assert torch.equal(seen, wanted.long())


def test_tiles_made_in_inference_serve_training() -> None:
    """They are kept for later calls, and an inference tensor would be refused there."""
    tiles_over.cache_clear()
    with torch.inference_mode():
        tiles = tiles_over(Reach(), 5, 2, CPU)
    assert not any(edge.hidden.is_inference() for tile in tiles for edge in tile.edges)


def test_a_reach_is_what_it_says() -> None:
    position = torch.arange(8)
    allowed = Reach(before=1, after=0, run=4).visible(torch.tensor(6), position)
    assert allowed.tolist() == [False, False, False, True, True, True, True, False]


@pytest.mark.parametrize(("first", "start", "end"), [(0, 0, 4), (4, 0, 8), (6, 3, 10), (4, 0, 12)])
def test_the_skew_puts_every_distance_where_it_belongs(first: int, start: int, end: int) -> None:
    """Columns by falling distance to columns by key, and its transpose back."""
    causal = end == first + 4
    nearest = 0 if causal else first - (end - 1)
    distance = torch.arange(first + 3 - start, nearest - 1, -1)
    by_distance = distance.double().expand(1, 4, -1).contiguous()
    wanted = (torch.arange(first, first + 4).unsqueeze(1) - torch.arange(start, end)).double()
    visible = wanted >= 0 if causal else wanted > -1e9
    seen = skewed(by_distance, end - start)[0]
    assert torch.equal(seen[visible], wanted[visible])
    # <skewed x, g> = <x, unskewed g> for every x makes one the transpose of the other.
    x, g = torch.randn_like(by_distance), torch.randn(1, 4, end - start).double() * visible
    there = (skewed(x, end - start) * g).sum()
    torch.testing.assert_close((x * unskewed(g, len(distance))).sum(), there)


def arguments(batch: int, length: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (batch, 3, length, 4)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("kept", [0, 2000, 2**20])
@pytest.mark.parametrize("reach", [Reach(), Reach(before=6), Reach(before=5, after=5)])
def test_gradients_are_those_of_finite_differences(
    reach: Reach, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "KEPT", kept)  # none, some, all
    q, k, v = arguments(2, 11)
    tiles = tiles_over(reach, 11, 4, CPU)
    farthest = max(tile.stop - 1 - tile.start for tile in tiles)
    nearest = 0 if reach.after == 0 else min(tile.first - tile.end + 1 for tile in tiles)
    n = farthest - nearest + 1
    vectors = torch.randn(3, n, 4, dtype=torch.float64, requires_grad=True)
    padding = torch.zeros(2, 11, dtype=torch.bool)
    padding[1, :3] = True  # the first queries of row 1 see nothing at all

    def path(q: Tensor, k: Tensor, v: Tensor, vectors: Tensor) -> Tensor:
        distances = Distances(farthest, nearest)
        return attend_in_tiles(
            q, k, v, tiles, vectors=vectors, distances=distances, padding=padding
        )

    assert torch.autograd.gradcheck(path, (q, k, v, vectors))


@pytest.mark.parametrize("kept", [0, 2**20])
def test_gradients_of_dropped_weights_are_those_of_the_same_drops(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "KEPT", kept)
    q, k, v = arguments(1, 9)
    drawn = Dropped.draw(0.3, 3, 9 * 9, q)
    monkeypatch.setattr(module.Dropped, "draw", lambda *_: drawn)
    tiles = tiles_over(Reach(), 9, 4, CPU)
    assert torch.autograd.gradcheck(lambda *x: attend_in_tiles(*x, tiles, dropout=0.3), (q, k, v))


@pytest.mark.parametrize("path", ["tiles", "blocks"])
def test_no_two_heads_drop_the_same_weights(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though each head of each sentence is computed by itself, as room is short."""
    monkeypatch.setattr(grid_tiles if path == "blocks" else module, "room", lambda like: 1)
    torch.manual_seed(0)
    q = torch.zeros(2, 3, 20, 20)
    v = torch.eye(20).expand(2, 3, -1, -1)  # so that a query's output is its weights
    if path == "tiles":
        y = attend_in_tiles(q, q, v, tiles_over(Reach(), 20, 8, CPU), dropout=0.5)
    else:
        blocks = Blocks(5, 4, 1, block_height=2, block_width=2, up=1, side=1)
        hidden = hidden_keys(blocks, torch.arange(20).view(5, 4, 1))
        mask = torch.zeros(hidden.shape).masked_fill(hidden, -1e9)
        y = attend_in_blocks(q, q, v, blocks, mask, dropout=0.5)
    patterns = (y > 0).flatten(0, 1)  # [B H, L, L]
    assert len({tuple(pattern.flatten().tolist()) for pattern in patterns}) == 6


def test_no_sentence_gives_none() -> None:
    q = torch.zeros(0, 2, 9, 3)
    tiles = tiles_over(Reach(), 9, 4, CPU)
    assert attend_in_tiles(q, q, q, tiles).shape == q.shape
    none = torch.zeros(0, 9, dtype=torch.bool)
    assert attend_in_tiles(q, q, q, tiles, padding=none).shape == q.shape


def test_a_second_derivative_is_refused_and_never_wrong() -> None:
    q, k, v = arguments(1, 9)
    y = attend_in_tiles(q, k, v, tiles_over(Reach(), 9, 4, CPU))
    (dq,) = torch.autograd.grad((y**2).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


@pytest.mark.parametrize(
    ("with_amx", "dtype", "length", "queries"),
    [
        (False, torch.float32, 1024, 64),
        (False, torch.bfloat16, 1024, 128),
        (False, torch.bfloat16, 2048, 256),
        (True, torch.float32, 1024, 128),
        (True, torch.bfloat16, 512, 128),
        (True, torch.bfloat16, 1024, 256),
    ],
)
def test_the_size_of_a_tile_is_what_was_fastest(
    with_amx: bool,
    dtype: torch.dtype,
    length: int,
    queries: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spans, "has_matrix_units", lambda: with_amx)
    assert queries_per_tile(length, torch.empty(1, dtype=dtype)) == queries
    assert queries_per_tile(length, torch.empty(1, dtype=dtype, device="meta")) == 512
