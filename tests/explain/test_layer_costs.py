"""Costs of layers against counts by PyTorch, by loops, and by what really depends on what."""

from __future__ import annotations

import pytest
import torch
from lectures import layers
from lectures._layer_costs import (
    UNREACHABLE,
    LayerKind,
    attention,
    convolution,
    path_length,
    recurrent,
)
from torch import nn

from triptych.core.attention.compressed import Compressed
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative import Relative
from triptych.tools.complexity import flop_counter, kept_bytes

WIDTH, HEADS = 8, 2


def attention_of(config: AttentionConfig, shape=(13,), *, causal=True) -> LayerKind:
    pattern = config.mask_pattern(shape, causal)
    return attention(config.build(WIDTH, HEADS, pattern))


def counted(run) -> int:
    with flop_counter() as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("length", [1, 13])
def test_pytorch_counts_the_same_operations(length):
    """Of attention without a mask, which computes every pair, and of convolutions."""
    x = torch.randn(1, length, WIDTH)
    for kind in (attention_of(Full(), causal=False), convolution(WIDTH, 4)):
        # PyTorch counts the products of the valid positions alone, and the padding is outside.
        assert kind.flops(length) == counted(lambda kind=kind: kind.run(x))


def cell_by_cell(layer: nn.LSTM | nn.GRU, x: torch.Tensor) -> torch.Tensor:
    """The layer from the equations of its cell, in products that PyTorch counts."""
    h = c = torch.zeros(1, WIDTH)
    states = []
    for now in x[0].split(1):
        i = nn.functional.linear(now, layer.weight_ih_l0) + layer.bias_ih_l0
        s = nn.functional.linear(h, layer.weight_hh_l0) + layer.bias_hh_l0
        if isinstance(layer, nn.LSTM):
            enter, forget, cell, leave = (i + s).chunk(4, -1)
            c = forget.sigmoid() * c + enter.sigmoid() * cell.tanh()
            h = leave.sigmoid() * c.tanh()
        else:
            (r, z, n), (of_r, of_z, of_n) = i.chunk(3, -1), s.chunk(3, -1)
            new = (n + (r + of_r).sigmoid() * of_n).tanh()
            gate = (z + of_z).sigmoid()
            h = (1 - gate) * new + gate * h
        states.append(h)
    return torch.stack(states, 1)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_layer_has_the_operations_of_its_cells(cell):
    kind, x = recurrent(cell, WIDTH), torch.randn(1, 7, WIDTH)
    torch.testing.assert_close(cell_by_cell(kind.layer, x), kind.run(x))
    assert kind.flops(7) == counted(lambda: cell_by_cell(kind.layer, x))


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (Full(), (13,)),
        (Local1D(block=3, memory=2), (13,)),
        (Relative(max_distance=4, window=5), (13,)),
        (Local2D(2, 2, 1, 1), (4, 4, 1)),
    ],
)
def test_the_operations_are_those_of_the_weights_that_are_not_zero(config, shape):
    """Of the definition: a query and a key that it sees cost 2 x width each, twice."""
    kind, length = attention_of(config, shape), torch.Size(shape).numel()
    weights = kind.layer.weights(torch.randn(1, length, WIDTH))  # [1, H, L, keys]
    pairs = int((weights[0, 0] > 0).sum())
    assert kind.flops(length) == 8 * length * WIDTH**2 + 4 * WIDTH * pairs


@pytest.mark.parametrize(("length", "stride"), [(13, 3), (12, 4), (2, 5)])
def test_compressed_attention_counts_blocks_and_the_rest(length, stride):
    pairs = 0
    for query in range(length):
        blocks = (query + 1) // stride
        pairs += blocks + (query + 1 - blocks * stride)
    pattern = Compressed(stride=stride).mask_pattern((length,), True)
    assert pattern.visible_pairs(length) == pairs


def depends(kind: LayerKind, length: int, n_layers: int) -> bool:
    """Whether the last output of so many layers depends on the first input."""
    torch.manual_seed(0)
    kind.layer.double()
    x = first = torch.randn(1, length, WIDTH, dtype=torch.float64, requires_grad=True)
    for _ in range(n_layers):
        x = kind.run(x)
    (gradient,) = torch.autograd.grad(x[0, -1].sum(), first)
    return bool(gradient[0, 0].any())


@pytest.mark.parametrize("length", [2, 6, 13])
@pytest.mark.parametrize(
    "kind",
    [
        attention_of(Full()),
        attention_of(Local1D(block=3, memory=2)),
        attention_of(Local1D(block=1, memory=1)),
        attention_of(Relative(max_distance=4, window=4)),
        convolution(WIDTH, 2),
        convolution(WIDTH, 4),
    ],
)
def test_so_many_layers_connect_the_ends_and_no_fewer(kind, length):
    path = kind.longest_path(length)
    assert depends(kind, length, path)
    assert path == 1 or not depends(kind, length, path - 1)


def test_positions_that_never_meet_have_no_path():
    assert attention_of(Local1D(block=3, memory=0)).longest_path(7) == UNREACHABLE
    assert path_length(Local1D(block=3, memory=0).mask_pattern((7,), True), 3) == 1


def test_kept_bytes_are_counted_by_hand():
    layer = nn.Sequential(nn.Linear(5, 3), nn.ReLU())
    x = torch.randn(4, 5, requires_grad=True)  # so that the weight is kept too, and not counted
    # The input of the product, and the output of ReLU, whose sign is the gradient.
    assert kept_bytes(layer, lambda: layer(x)) == 4 * (4 * 5 + 4 * 3)


def test_the_table_has_a_row_for_each_kind():
    about, _, *rows = layers.layer_costs.function().splitlines()
    assert f"{layers.LISTED} positions" in about
    for row, (name, kind) in zip(rows, layers.kinds(layers.LISTED).items(), strict=True):
        assert row.startswith(name)
        assert f" {kind.flops(layers.LISTED):,} " in row
        assert f" {kind.longest_path(layers.LISTED):,} " in row
