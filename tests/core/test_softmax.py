"""Which kernel attention without a bias takes, and that it does not matter to the result."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention import softmax
from triptych.core.attention.full import Full
from triptych.core.attention.softmax import attend, causal_mask, products


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry a call of the fused kernel: whether it was told of causality instead of a mask."""
    calls: list[bool] = []
    fused = F.scaled_dot_product_attention

    def counted(*tensors: Tensor, is_causal: bool = False, **options: object) -> Tensor:
        calls.append(is_causal)
        return fused(*tensors, is_causal=is_causal, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(softmax.F, "scaled_dot_product_attention", counted)
    return calls


@pytest.mark.parametrize("causal", [True, False])
def test_full_attention_trains_through_the_fused_kernel(
    causal: bool, fused_calls: list[bool]
) -> None:
    layer = Full().build(8, 2, (300,), causal)
    layer(torch.randn(2, 24, 8))
    layer(torch.randn(2, 300, 8))
    assert fused_calls == [causal, causal]  # without a mask, which would cost the flash kernel
    padding = torch.zeros(2, 24, dtype=torch.bool)
    layer(torch.randn(2, 24, 8), padding)
    assert fused_calls == [causal, causal, False]


@pytest.mark.parametrize(("length", "fused"), [(24, 0), (256, 0), (257, 1)])
def test_short_half_precision_on_a_cpu_takes_explicit_products(
    length: int, fused: int, fused_calls: list[bool]
) -> None:
    q, k, v = torch.randn(3, 1, 2, length, 4).bfloat16()
    attend(q, k, v, causal=True)
    assert len(fused_calls) == fused


@pytest.mark.parametrize("masked", [True, False])
def test_both_kernels_are_one_attention(masked: bool) -> None:
    q, k, v = torch.randn(3, 2, 2, 9, 4, dtype=torch.float64)
    mask = causal_mask(9, q.device) if masked else None
    fused = attend(q, k, v, mask=mask)
    torch.testing.assert_close(products(q, k, v, mask), fused, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(
        attend(q, k, v, causal=True),
        products(q, k, v, causal_mask(9, q.device)),
        rtol=0.0,
        atol=1e-12,
    )
