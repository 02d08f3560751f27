"""The linear map through either library, and dropout from fewer random numbers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from triptych.core import linear as module
from triptych.core.linear import linear


@pytest.fixture
def by_convolution(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every float32 map goes through a convolution, whatever the processor; one entry for each."""
    calls: list[int] = []
    convolution = F.conv2d

    def counted(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        calls.append(x.numel())
        return convolution(x, *rest)

    monkeypatch.setattr(module, "FEWEST_PRODUCTS", 0)
    monkeypatch.setattr(module, "has_wide_vectors", lambda: True)
    monkeypatch.setattr(module, "has_matrix_units", lambda: False)
    monkeypatch.setattr(module.F, "conv2d", counted)
    return calls


@pytest.mark.parametrize("shape", [(2, 5, 6), (7, 6), (2, 3, 4, 6)])
@pytest.mark.parametrize("biased", [True, False])
def test_a_convolution_of_width_one_is_the_linear_map(
    shape: tuple[int, ...], biased: bool, by_convolution: list[int]
) -> None:
    x = torch.randn(shape, requires_grad=True)
    weight, bias = torch.randn(9, 6, requires_grad=True), torch.randn(9, requires_grad=True)
    results = []
    for path in (linear, F.linear):
        y = path(x, weight, bias if biased else None)
        wanted = [x, weight, bias] if biased else [x, weight]
        results.append([y, *torch.autograd.grad((y * torch.arange(9)).sum(), wanted)])
    assert by_convolution == [x.numel()]
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)


def test_a_strided_input_is_read_right(by_convolution: list[int]) -> None:
    x, weight = torch.randn(6, 5, 2).permute(2, 1, 0), torch.randn(9, 6)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
    assert by_convolution


def test_other_precisions_and_small_maps_stay_with_torch(by_convolution: list[int]) -> None:
    x, weight = torch.randn(3, 6), torch.randn(9, 6)
    linear(x.double(), weight.double())
    linear(x.bfloat16(), weight.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert not by_convolution
    module.FEWEST_PRODUCTS = 3 * 6 * 9 + 1
    linear(x, weight)
    assert not by_convolution


def test_processors_with_matrix_units_are_left_to_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_wide_vectors", lambda: True)
    x, weight = torch.randn(3, 6), torch.randn(9, 6)
    for units in (True, False):
        monkeypatch.setattr(module, "has_matrix_units", lambda units=units: units)
        assert module._through_convolution(x, weight) is not units
