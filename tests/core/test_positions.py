from __future__ import annotations

import math

import pytest
import torch

from triptych.core import positions as orders
from triptych.core.layers import GELU
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.positions import (
    AxialEmbedding,
    Learned,
    LearnedEmbedding,
    Metrical,
    MetricalEmbedding,
    NoEmbedding,
    NoPositions,
    PositionConfig,
    Sinusoidal,
    SinusoidalEmbedding,
    SumOfEmbeddings,
    sinusoidal_init,
)
from triptych.core.transformer import TransformerConfig


def test_sinusoids_are_the_published_ones() -> None:
    code = SinusoidalEmbedding(8).double()(torch.tensor([0, 3, 5000]))
    for row, position in zip(code, (0, 3, 5000), strict=True):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert row[2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert row[2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinusoids_of_late_positions_are_only_rounded(dtype: torch.dtype) -> None:
    code = SinusoidalEmbedding(16).to(dtype)(torch.tensor([100_003]))[0].to(dtype).double()
    angle = torch.tensor([100_003 / 10000 ** (2 * i / 16) for i in range(8)], dtype=torch.float64)
    exact = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten()
    torch.testing.assert_close(code, exact, rtol=0.0, atol=torch.finfo(dtype).eps / 2)


@pytest.mark.parametrize("positions", [Sinusoidal(), NoPositions(), Learned()], ids=str)
def test_positions_keep_the_dtype_of_the_model(positions: PositionConfig) -> None:
    seen = []
    config = TransformerConfig(1, 8, 2, feed_forward=GELU(16), positions=positions)
    model = EncoderDecoder(config, source_vocabulary=5, target_vocabulary=5).bfloat16()
    model.decoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    model(tokens, None, tokens)
    assert seen == [torch.bfloat16]


def test_grid_tells_every_cell_apart_in_either_order() -> None:
    raster, blocks = orders.raster((4, 6, 3)), orders.blocks((4, 6, 3), 2, 3)
    for order in (raster, blocks):
        code = AxialEmbedding(order, 16)(torch.arange(order.length))
        assert code.shape == (72, 16)
        assert code.unique(dim=0).shape[0] == 72


def test_grid_gives_a_cell_the_same_vector_in_either_order() -> None:
    raster, blocks = orders.raster((4, 6, 3)), orders.blocks((4, 6, 3), 2, 3)
    one, other = AxialEmbedding(raster, 16), AxialEmbedding(blocks, 16)
    other.load_state_dict(one.state_dict())
    steps = torch.arange(72)
    torch.testing.assert_close(
        raster.to_images(one(steps)[None]), blocks.to_images(other(steps)[None])
    )


@pytest.mark.parametrize(("extent", "width"), [(28, 64), (28, 15), (5, 8), (3, 4)])
def test_one_rotation_leads_from_each_place_to_the_next(extent: int, width: int) -> None:
    code = sinusoidal_init(extent, width + width % 2).double()  # [extent, width], whole pairs
    torch.testing.assert_close(sinusoidal_init(extent, width).double(), code[:, :width])
    assert code.unique(dim=0).shape[0] == extent
    assert code.square().mean().item() == pytest.approx(1.0, abs=1e-6)
    pairs = torch.view_as_complex(code.unflatten(1, (-1, 2)).contiguous())  # [extent, pairs]
    rotation = pairs[1:] / pairs[:-1]  # [extent - 1, pairs]
    torch.testing.assert_close(rotation, rotation[:1].expand_as(rotation), rtol=0.0, atol=1e-5)
    turn = rotation[0].angle().abs() / (2 * math.pi)  # of a whole one, from place to place
    assert turn.max().item() == pytest.approx(1 / 4)
    assert turn.min().item() == pytest.approx(1 / (2 * extent))


def test_a_grid_starts_from_waves_and_learns() -> None:
    grid = AxialEmbedding(orders.raster((4, 6, 3)), 16)
    assert torch.equal(grid.row.weight, 0.5 * sinusoidal_init(4, 8))
    assert torch.equal(grid.column.weight, 0.5 * sinusoidal_init(6, 8))
    assert all(parameter.requires_grad for parameter in grid.parameters())


def test_cycles_repeat_and_add_up() -> None:
    code = MetricalEmbedding(8, [(1, 4), (4, 3)])
    index = torch.arange(24)
    y = code(index)
    torch.testing.assert_close(y[:12], y[12:])
    torch.testing.assert_close(y[5], code.tables[0].weight[1] + code.tables[1].weight[1])
    with pytest.raises(ValueError, match="cycles"):
        Metrical([])


def test_sum_learned_and_none() -> None:
    learned, none = LearnedEmbedding(10, 6), NoEmbedding(6)
    index = torch.tensor([[1, 2], [3, 9]])
    assert learned(index).shape == none(index).shape == (2, 2, 6)
    torch.testing.assert_close(SumOfEmbeddings([learned, none])(index), learned(index))
    with pytest.raises(IndexError):
        learned(torch.tensor([10]))
