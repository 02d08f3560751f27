"""Attention in tiles: covered pairs, skews, gradients, dropout, memory, precision."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from gpu.attention_cases import EXAMPLES, Example, build, layer_of, length_of, name
from saved import saved_bytes
from torch import Tensor

from triptych.core.attention.backends import tiled
from triptych.core.attention.backends.tiled import attend_in_tiles, skewed, tiles_of, unskewed
from triptych.core.attention.mask import BlockWindow, MaskPattern, SlidingWindow
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.attention.relative import Relative
from triptych.core.attention.relative_bias import DistanceBias

CPU = torch.device("cpu")


def queries(monkeypatch: pytest.MonkeyPatch, number: int, weight_bytes: int = 1) -> None:
    monkeypatch.setattr(tiled, "queries_per_tile", lambda device: number)
    monkeypatch.setattr(tiled, "TILE_BYTES", weight_bytes)


def relative(
    max_distance: int = 4, window: int | None = None, causal: bool = True
) -> tuple[SlidingWindow, DistanceBias]:
    """Pattern and bias of three heads of width 4."""
    return SlidingWindow(causal, window), DistanceBias(3, 4, max_distance, causal).double()


class OnlyVisible(MaskPattern):
    """A pattern that says nothing but which keys a query sees."""

    def visible(self, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & ((query - key) % 3 != 1)


def assert_tiles_hold_the_visible_pairs(
    pattern: MaskPattern, length: int, most: int, period: int = 1
) -> None:
    seen = torch.zeros(length, length, dtype=torch.int64)
    position = torch.arange(length)
    for tile in tiles_of(pattern, period, length, CPU):
        queries, keys = position[tile.queries], position[tile.keys]
        assert len(queries) <= -(-most // period) * period
        assert tile.queries.start % period == 0
        pairs = torch.ones(len(queries), len(keys), dtype=torch.int64)
        for run, hidden in tile.partial_masks:
            pairs[:, run].masked_fill_(hidden, 0)
        seen[tile.queries, tile.keys] += pairs
        distance = queries.unsqueeze(1) - keys
        smallest = int(distance.min())
        assert tile.distances.start == length - 1 - distance.max()
        assert tile.distances.stop == length - (max(0, smallest) if pattern.causal else smallest)
    assert torch.equal(seen, pattern.visible(position.unsqueeze(1), position).long())


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
@pytest.mark.parametrize("most", [1, 3, 8, 100])
def test_tiles_of_every_variant_hold_exactly_the_visible_pairs(
    example: Example, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries(monkeypatch, most)
    layer = build(example)
    period = 1 if layer.bias is None else layer.bias.period
    assert_tiles_hold_the_visible_pairs(layer.mask_pattern, length_of(example), most, period)


@pytest.mark.parametrize("most", [1, 3, 8, 100])
@pytest.mark.parametrize(
    "pattern",
    [SlidingWindow(*each) for each in product([True, False], [None, 1, 4, 22, 23, 40])]
    + [BlockWindow(*each) for each in [(6, 3), (4, 0), (5, 9), (30, 2)]],
)
def test_tiles_of_any_window_hold_exactly_the_visible_pairs(
    pattern: MaskPattern, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries(monkeypatch, most)
    assert_tiles_hold_the_visible_pairs(pattern, 23, most)


def test_a_pattern_that_has_nothing_but_its_rule_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    queries(monkeypatch, 4)
    assert_tiles_hold_the_visible_pairs(OnlyVisible(), 13, 4)
    layer = MultiHeadAttention(12, 3, OnlyVisible()).double()
    x = torch.randn(2, 13, 12, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer.reference(x), rtol=0.0, atol=1e-12)


# Skew --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "start", "end"), [(0, 0, 4), (4, 0, 8), (6, 3, 10), (4, 0, 12)])
def test_the_skew_puts_every_distance_at_its_key(first: int, start: int, end: int) -> None:
    causal = end == first + 4
    nearest = 0 if causal else first - (end - 1)
    distance = torch.arange(first + 3 - start, nearest - 1, -1)
    by_distance = distance.double().expand(1, 4, -1).contiguous()
    wanted = (torch.arange(first, first + 4).unsqueeze(1) - torch.arange(start, end)).double()
    visible = wanted >= 0 if causal else wanted > -1e9
    seen = skewed(by_distance, end - start)[0]
    assert torch.equal(seen[visible], wanted[visible])
    # <skewed x, g> = <x, unskewed g> for every x: one is the transpose of the other.
    x, g = torch.randn_like(by_distance), torch.randn(1, 4, end - start).double() * visible
    there = (skewed(x, end - start) * g).sum()
    torch.testing.assert_close((x * unskewed(g, len(distance))).sum(), there)


# Gradients ---------------------------------------------------------------------------------------


def arguments(batch: int, length: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (batch, 3, length, 4)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("weight_bytes", [1, 2**21])
@pytest.mark.parametrize(
    "settings", [{}, {"window": 6}, {"causal": False, "window": 5}, {"max_distance": 30}]
)
def test_gradients_are_those_of_finite_differences(
    settings: dict[str, object], weight_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries(monkeypatch, 4, weight_bytes)
    pattern, bias = relative(**settings)  # type: ignore[arg-type]
    real = torch.ones(2, 11, dtype=torch.bool)
    real[1, :3] = False  # the first queries of row 1 see nothing at all

    def path(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        y: Tensor = torch.func.functional_call(
            _Call(pattern, bias), {"bias.table": table}, (q, k, v, real)
        )
        return y

    assert torch.autograd.gradcheck(path, (*arguments(2, 11), bias.table.detach().requires_grad_()))


class _Call(torch.nn.Module):
    def __init__(self, pattern: MaskPattern, bias: DistanceBias) -> None:
        super().__init__()
        self.pattern, self.bias = pattern, bias

    def forward(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
        return attend_in_tiles(self.pattern, self.bias, q, k, v, real=real)


def test_a_second_derivative_is_refused_and_never_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    queries(monkeypatch, 4)
    q, k, v = arguments(1, 9)
    y = attend_in_tiles(*relative(), q, k, v)
    (dq,) = torch.autograd.grad((y**2).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_an_empty_batch_gives_an_empty_batch() -> None:
    q = torch.zeros(0, 3, 9, 4, dtype=torch.float64)
    assert attend_in_tiles(*relative(), q, q, q).shape == q.shape
    none = torch.zeros(0, 9, dtype=torch.bool)
    assert attend_in_tiles(*relative(), q, q, q, real=none).shape == q.shape


# Dropout -----------------------------------------------------------------------------------------


def test_gradients_of_dropped_weights_are_those_of_the_same_drops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries(monkeypatch, 2)

    def path(*inputs: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend_in_tiles(*pattern_and_bias, *inputs, dropout=0.3)

    pattern_and_bias = relative()
    assert torch.autograd.gradcheck(path, arguments(1, 5))


def test_the_backward_pass_does_not_move_the_random_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries(monkeypatch, 4)
    y = attend_in_tiles(*relative(), *arguments(1, 9), dropout=0.3)
    torch.rand(1)
    before = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_drops_its_share_of_each_head_and_keeps_the_mean() -> None:
    length, heads = 512, 4
    q = torch.zeros(1, heads, length, length)
    v = torch.eye(length).expand(1, heads, -1, -1)  # so that the output is the weights
    bias = DistanceBias(heads, length, max_distance=1, causal=False)
    y = attend_in_tiles(SlidingWindow(False), bias, q, q, v, dropout=0.1)
    weights = y.detach()[0] * length  # [H, L, L]
    dropped = (weights == 0).double()
    assert abs(float(dropped.mean()) - 0.1) < 3e-3
    assert abs(float(weights.mean()) - 1) < 3e-3
    for one, other in ((dropped[0], dropped[1]), (dropped[:, :-1], dropped[:, 1:])):
        both = (one * other).mean() / 0.1**2
        assert abs(float(both) - 1) < 0.06, "drops are not independent"


# Memory and precision ----------------------------------------------------------------------------


def saved_by(length: int) -> int:
    """Bytes that a layer of relative attention saves for its backward pass."""
    layer = layer_of(Relative(max_distance=length), 8, 2, (length,))
    x = torch.randn(1, length, 8, requires_grad=True)
    return saved_bytes(lambda: layer(x))


def test_memory_kept_for_the_backward_pass_is_linear_in_the_length() -> None:
    assert saved_by(1024) < 4.5 * saved_by(256)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("inputs", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(
    inputs: torch.dtype, within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the backward pass is called within it or, as is usual, outside."""
    queries(monkeypatch, 8)
    pattern, bias = relative()
    bias.float()

    def gradients() -> list[Tensor]:
        q, k, v = arguments(2, 20, inputs)
        y = attend_in_tiles(pattern, bias, q, k, v)
        with torch.autocast("cpu", enabled=within):
            return [y, *torch.autograd.grad(y.sum(), (q, k, v))]

    expected = gradients()
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients()
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == inputs
        assert torch.equal(one, other)
