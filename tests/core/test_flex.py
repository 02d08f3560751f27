"""FlexAttention gives what the reference gives; its own kernel needs a GPU."""

from __future__ import annotations

import math

import pytest
import torch
from attention_cases import EXAMPLES, build, inputs, layer_of, length_of, name

from triptych.core.attention.backends.flex import attend_by_flex, flex_serves
from triptych.core.attention.base import AttentionConfig, Example
from triptych.core.attention.context import ForwardContext
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative

SERVED = [example for example in EXAMPLES if not build(example).uses_token_ids]
every_example = pytest.mark.parametrize("example", SERVED, ids=name)


@every_example
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_the_pattern_and_its_scores_are_those_of_the_reference(example: Example) -> None:
    layer, x = build(example).float(), inputs(example).float()
    padding = torch.zeros(2, length_of(example), dtype=torch.bool)
    padding[1, -3:] = True
    q, k, v = layer._heads(x, torch.arange(length_of(example)))
    y = attend_by_flex(layer.mask_pattern, layer.bias, q, k, v, padding, compiled=False)
    seen = layer._merge(y)
    torch.testing.assert_close(
        seen, layer.reference(x, ForwardContext(padding)), rtol=1e-4, atol=1e-5
    )


def test_what_the_kernel_does_not_serve_goes_elsewhere() -> None:
    def served(
        config: AttentionConfig, width: int = 32, dtype: torch.dtype = torch.float32
    ) -> bool:
        bias = config.relative_bias(2, width, causal=True)
        return flex_serves(bias, torch.empty(1, 2, 8, width, dtype=dtype))

    assert served(Relative(4))
    assert served(Local1D(4, 2), dtype=torch.bfloat16)
    assert not served(Relative(4), width=8)  # narrow heads
    assert not served(Relative(4), dtype=torch.float64)
    assert not served(PitchTime(n_pitches=5))  # token ids


@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention's kernel needs a GPU")
def test_the_compiled_kernel_has_the_values_and_gradients_of_the_reference() -> None:
    width, heads = 48, 3
    for config, shape, causal in SERVED:
        layer = layer_of(config, width, heads, shape, causal).cuda()
        results = []
        for path in (layer.forward, layer.reference):
            torch.manual_seed(1)
            x = torch.randn(2, math.prod(shape), width, device="cuda", requires_grad=True)
            y = path(x)
            weighted = (y * torch.arange(width, device="cuda")).sum()
            results.append([y, *torch.autograd.grad(weighted, [x, *layer.parameters()])])
        for fast, slow in zip(*results, strict=True):
            torch.testing.assert_close(fast, slow, rtol=2e-2, atol=2e-2)
