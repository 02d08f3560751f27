"""Pictures in blocks through PyTorch's own kernel: the same attention as by its definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attention_cases import EXAMPLES, build, inputs, name
from autocast import assert_autocast_changes_nothing
from torch import Tensor

from triptych.core.attention import local2d
from triptych.core.attention.backends import dispatch as choice
from triptych.core.attention.backends import grid_fused
from triptych.core.attention.backends.dispatch import attend_over_picture, fused_blocks_pay
from triptych.core.attention.backends.grid import Blocks, hidden_keys
from triptych.core.attention.backends.grid_fused import attend_in_fused_blocks
from triptych.core.attention.base import Example

PICTURES = [example for example in EXAMPLES if isinstance(example.config, local2d.Local2D)]
BLOCKS = Blocks(5, 4, 1, block_height=2, block_width=2, up=1, side=1)  # 3 rows of 2 blocks
LENGTH = 20


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Blocks]:
    """Pictures always in blocks, and these always through the fused kernel; what it was given."""
    seen: list[Blocks] = []

    def counted(q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, mask: Tensor) -> Tensor:
        seen.append(blocks)
        return attend_in_fused_blocks(q, k, v, blocks, mask)

    monkeypatch.setattr(local2d, "LARGEST_SHARE", 1e9)
    monkeypatch.setattr(choice, "fused_blocks_pay", lambda q: True)
    monkeypatch.setattr(choice, "attend_in_fused_blocks", counted)
    return seen


@pytest.mark.parametrize("example", PICTURES, ids=name)
@pytest.mark.parametrize("heads", [1, 2, 6, 15])  # together; 6 are two of the five pictures
def test_values_and_gradients_are_those_of_the_definition(
    example: Example, heads: int, calls: list[Blocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = build(example)
    blocks = layer.pattern.blocks
    size = blocks.columns * blocks.n_keys * layer.d_head * 8  # bytes of a head's keys in a row
    monkeypatch.setattr(grid_fused, "ROOM", heads * size)
    x = inputs(example, batch=5).requires_grad_()
    given = [x, *layer.parameters()]
    weights = torch.randn_like(x)

    def values_and_gradients(path: Callable[[Tensor], Tensor]) -> list[Tensor]:
        y = path(x)
        return [y, *torch.autograd.grad((y * weights).sum(), given)]

    seen, wanted = (values_and_gradients(path) for path in (layer, layer.reference))
    assert len(calls) == 1
    for one, other in zip(seen, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


def arguments(dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor]:
    """q, k, v of three pictures and two heads, and what raster order hides."""
    torch.manual_seed(0)
    given = [torch.randn(3, 2, LENGTH, 3, dtype=dtype).requires_grad_() for _ in range(3)]
    return given, hidden_keys(BLOCKS, torch.arange(LENGTH).view(5, 4, 1))


def test_gradients_are_those_of_finite_differences(calls: list[Blocks]) -> None:
    given, hidden = arguments()
    assert torch.autograd.gradcheck(
        lambda *inputs: attend_over_picture(*inputs, BLOCKS, hidden), given
    )
    assert calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_within_autocast_are_those_without(
    dtype: torch.dtype, calls: list[Blocks]
) -> None:
    given, hidden = arguments(dtype)

    def gradients() -> list[Tensor]:
        y = attend_over_picture(*given, BLOCKS, hidden)
        return [y, *torch.autograd.grad(y.float().square().sum(), given)]

    assert_autocast_changes_nothing(gradients, dtype)
    assert len(calls) == 2


def test_any_order_of_memory_is_read_right(calls: list[Blocks]) -> None:
    """Such as keys whose features lie apart, which the kernel would read wrongly."""
    blocks = Blocks(4, 2, 1, block_height=2, block_width=2, up=0, side=0)  # as wide as the picture
    hidden = hidden_keys(blocks, torch.arange(8).view(4, 2, 1))
    given = [torch.randn(1, 2, 3, 8).double().mT.requires_grad_() for _ in range(3)]
    results = []
    for leaves in (given, [x.detach().contiguous().requires_grad_() for x in given]):
        y = attend_over_picture(*leaves, blocks, hidden)
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for seen, wanted in zip(*results, strict=True):
        torch.testing.assert_close(seen, wanted, rtol=0.0, atol=1e-12)
    assert len(calls) == 2


def test_no_picture_gives_none(calls: list[Blocks]) -> None:
    given, hidden = arguments()
    assert attend_over_picture(*(x[:0] for x in given), BLOCKS, hidden).shape == (0, 2, LENGTH, 3)
    assert calls


def test_a_second_derivative_is_refused_and_never_wrong(calls: list[Blocks]) -> None:
    given, hidden = arguments()
    y = attend_over_picture(*given, BLOCKS, hidden)
    (dq,) = torch.autograd.grad((y**2).sum(), given[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_what_it_does_not_serve_takes_the_products(calls: list[Blocks]) -> None:
    given, hidden = arguments()
    padding = torch.zeros(3, LENGTH, dtype=torch.bool)
    padding[1, 15:] = True
    attend_over_picture(*given, BLOCKS, hidden, padding=padding)
    attend_over_picture(*given, BLOCKS, hidden, dropout=0.5)
    assert not calls


def test_it_is_chosen_where_it_was_measured_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_matrix_units", lambda: True)
    single, half = torch.empty(1), torch.empty(1, dtype=torch.bfloat16)
    assert fused_blocks_pay(single)
    assert not fused_blocks_pay(single.double())
    assert not fused_blocks_pay(single.to("meta"))  # stands for any device but a CPU
    assert not fused_blocks_pay(half)
    with torch.no_grad():
        assert fused_blocks_pay(half)
    monkeypatch.setattr(choice, "has_matrix_units", lambda: False)
    assert not fused_blocks_pay(single)
