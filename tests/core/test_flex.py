"""FlexAttention gives what the reference gives; its own kernel needs a GPU."""

from __future__ import annotations

import math

import pytest
import torch
from gpu.attention_cases import EXAMPLES, Example, build, context, inputs, layer_of, length_of, name
from gpu.fake_cuda import fake_cuda

from triptych.core.attention.backends import dispatch
from triptych.core.attention.backends.flex import attend_by_flex, flex_serves
from triptych.core.attention.mask import SlidingWindow
from triptych.core.attention.multihead import MultiHeadAttention

SERVED = [each for each in EXAMPLES if type(build(each)).forward is MultiHeadAttention.forward]
"""Examples whose layers leave the choice of the backend to `dispatch.attend`."""
QUICK = ("Local1D(block=4, memory=6)-15", "WithRotary(inner=PitchTime(")
"""Beginnings of the names of two examples that also run among the fast tests."""


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(e, id=name(e), marks=[] if name(e).startswith(QUICK) else pytest.mark.slow)
        for e in SERVED
    ],
)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_the_pattern_and_its_scores_are_those_of_the_reference(example: Example) -> None:
    layer, x = build(example).float(), inputs(example).float()
    padding = torch.zeros(2, length_of(example), dtype=torch.bool)
    padding[1, -3:] = True
    now = layer.shared_context(x, context(x, padding))
    y = attend_by_flex(
        layer.mask_pattern,
        layer.bias,
        *layer._heads(x, now.rotation),
        token_classes=now.token_classes,
        real=~padding,
        compiled=False,
    )
    torch.testing.assert_close(layer._merge(y), layer.reference(x, now), rtol=1e-4, atol=1e-5)


def test_what_the_kernel_does_not_serve_goes_elsewhere() -> None:
    def served(width: int, dtype: torch.dtype) -> bool:
        return flex_serves(torch.empty(1, 2, 8, width, dtype=dtype))

    assert served(32, torch.float32)
    assert served(16, torch.bfloat16)
    assert not served(15, torch.float32)  # narrow heads
    assert not served(32, torch.float64)


@pytest.mark.parametrize(
    ("device", "dropout", "width", "by_flex"),
    [
        ("cuda", 0.0, 32, True),
        ("cuda", 0.1, 32, False),
        ("cuda", 0.0, 8, False),
        ("cpu", 0.0, 32, False),
    ],
)
def test_only_cuda_without_dropout_takes_it(
    device: str, dropout: float, width: int, by_flex: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for backend in ("attend_by_flex", "attend_in_tiles"):
        monkeypatch.setattr(dispatch, backend, lambda *_, name=backend, **__: taken.append(name))
    with fake_cuda(torch.nn.Identity()):
        q = torch.empty(1, 2, 8, width, device=device)
        dispatch.attend(SlidingWindow(True, 3), None, q, q, q, dropout=dropout)
    assert taken == ["attend_by_flex" if by_flex else "attend_in_tiles"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention's kernel needs a GPU")
def test_the_compiled_kernel_has_the_values_and_gradients_of_the_reference() -> None:
    width, heads = 48, 3
    for config, shape, causal in SERVED:
        layer = layer_of(config, width, heads, shape, causal).cuda()
        results = []
        for path in (layer.forward, layer.reference):
            torch.manual_seed(1)
            x = torch.randn(2, math.prod(shape), width, device="cuda", requires_grad=True)
            y = path(x, context(x))
            weighted = (y * torch.arange(width, device="cuda")).sum()
            results.append([y, *torch.autograd.grad(weighted, [x, *layer.parameters()])])
        for fast, slow in zip(*results, strict=True):
            torch.testing.assert_close(fast, slow, rtol=2e-2, atol=2e-2)
