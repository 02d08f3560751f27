"""Which kernel attention without a bias takes, and that it does not matter to the result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.backends import dispatch as choice
from triptych.core.attention.backends.dispatch import attend, attend_masked, kernel_for
from triptych.core.attention.backends.spans import Reach
from triptych.core.attention.full import Full
from triptych.core.attention.reference import causal_mask, products

CAUSAL = Reach()
EVERYTHING = Reach(before=None, after=None)


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry a call of the fused kernel: whether it was told of causality instead of a mask."""
    calls: list[bool] = []
    fused = F.scaled_dot_product_attention

    def counted(*tensors: Tensor, is_causal: bool = False, **options: object) -> Tensor:
        calls.append(is_causal)
        return fused(*tensors, is_causal=is_causal, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(choice.F, "scaled_dot_product_attention", counted)
    return calls


@pytest.mark.parametrize("causal", [True, False])
def test_full_attention_trains_through_the_fused_kernel(
    causal: bool, fused_calls: list[bool]
) -> None:
    layer = Full().build(8, 2, (1100,), causal)
    layer(torch.randn(2, 24, 8))
    layer(torch.randn(2, 1100, 8))
    assert fused_calls == [causal, causal]  # without a mask, which would cost the flash kernel
    padding = torch.zeros(2, 24, dtype=torch.bool)
    layer(torch.randn(2, 24, 8), padding)
    assert fused_calls == [causal, causal, False]


@pytest.mark.parametrize(
    ("length", "training", "kernel"),
    [
        (24, True, "products"),
        (128, True, "products"),
        (256, True, "tiles"),
        (4096, True, "tiles"),
        (128, False, "products"),
        (256, False, "sdpa"),
    ],
)
def test_half_precision_on_a_cpu_leaves_the_slow_backward_pass_of_sdpa_alone(
    length: int, training: bool, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "has_matrix_units", lambda: False)
    q = torch.empty(1, 2, 1, 4, dtype=torch.bfloat16)
    with torch.set_grad_enabled(training):
        assert kernel_for(q, length) == kernel
        assert kernel_for(q.float(), length) == "sdpa"
        assert kernel_for(q.float(), length, dropout=0.1) == "tiles"
        assert kernel_for(q.to("meta"), length) == "sdpa"


@pytest.mark.parametrize(
    ("length", "causal", "training", "kernel"),
    [
        (255, True, True, "sdpa"),
        (256, True, True, "tiles"),
        (1024, True, True, "tiles"),
        (1025, True, True, "sdpa"),
        (512, True, False, "sdpa"),
        (512, False, True, "sdpa"),
    ],
)
def test_float32_trains_in_tiles_where_half_of_the_pairs_are_hidden(
    length: int, causal: bool, training: bool, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "has_matrix_units", lambda: False)
    q = torch.empty(1, 2, 1, 4)
    with torch.set_grad_enabled(training):
        assert kernel_for(q, length, causal=causal) == kernel
        assert kernel_for(q.double(), length, causal=causal) == "sdpa"


def test_tiles_on_a_processor_with_amx_are_for_many_rows_of_middle_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "has_matrix_units", lambda: True)

    def chosen(rows: int, n_keys: int, dtype: torch.dtype, dropout: float = 0.0) -> str:
        q = torch.zeros(1, 1, dtype=dtype).expand(rows, n_keys, 4).requires_grad_()
        return kernel_for(q, n_keys, causal=True, dropout=dropout)

    half, single = torch.bfloat16, torch.float32
    assert chosen(64, 767, half) == chosen(64, 767, single) == "tiles"
    assert chosen(64, 768, half) == chosen(64, 768, single) == "sdpa"
    assert chosen(1, 768, half, dropout=0.1) == "tiles"
    assert chosen(16, 512, half) == chosen(16, 512, single) == "tiles"
    assert chosen(15, 512, half) == chosen(15, 512, single) == "sdpa"  # too few rows
    assert chosen(64, 256, half) == "tiles"
    assert chosen(256, 511, single) == "sdpa"


@pytest.mark.parametrize("reach", [CAUSAL, EVERYTHING])
@pytest.mark.parametrize("padded", [False, True])
def test_all_kernels_are_one_attention(
    reach: Reach, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = torch.randn(3, 2, 2, 9, 4, dtype=torch.float64).requires_grad_()
    padding = torch.zeros(2, 9, dtype=torch.bool)
    padding[1, 5:] = True
    mask = causal_mask(9, inputs.device) if reach == CAUSAL else torch.ones(9, 9) > 0
    visible = mask & ~padding[:, None, None, :] if padded else mask

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend_masked(q, k, v, mask, padding=padding if padded else None)

    def spanned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, reach, padding=padding if padded else None)

    def value_and_gradient(path: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Tensor]:
        y = path(*inputs.unbind(0))
        return [y, torch.autograd.grad((y * torch.arange(4)).sum(), inputs)[0]]

    wanted = value_and_gradient(lambda q, k, v: products(q, k, v, visible))
    for name in ("sdpa", "products", "tiles"):
        monkeypatch.setattr(choice, "kernel_for", lambda q, n, name=name, **_: name)
        for path in (masked, spanned):
            for seen, expected in zip(value_and_gradient(path), wanted, strict=True):
                torch.testing.assert_close(seen, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["sdpa", "products", "tiles"])
def test_queries_of_another_number_than_the_keys(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k = torch.randn(2, 2, 5, 4, dtype=torch.float64), torch.randn(2, 2, 9, 4).double()
    monkeypatch.setattr(choice, "kernel_for", lambda q, n_keys, **_: kernel)
    monkeypatch.setattr(choice, "queries_per_tile", lambda length, like: 2)
    seen = attend(q, k, k.cos(), EVERYTHING)
    torch.testing.assert_close(seen, products(q, k, k.cos(), None), rtol=0.0, atol=1e-12)


def test_a_layer_drops_weights_in_training_only() -> None:
    layer = Full().build(8, 2, (40,), causal=True)
    layer.dropout = 0.5
    x = torch.randn(1, 40, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    torch.testing.assert_close(layer(x), layer.reference(x))
