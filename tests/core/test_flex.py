"""FlexAttention gives what the reference gives; its own kernel needs a GPU."""

from __future__ import annotations

import pytest
import torch
from attention_cases import EXAMPLES, build, inputs, length_of, name

from triptych.core.attention.backends.flex import attend_by_flex
from triptych.core.attention.base import Example
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.attention.pitch_time import PitchTime

# A variant that is told symbols does not go this way, see `MultiHeadAttention.forward`.
every_example = pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if not build(example).reads_symbols], ids=name
)


@every_example
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()
def test_the_pattern_and_its_scores_are_those_of_the_reference(example: Example) -> None:
    layer, x = build(example).float(), inputs(example).float()
    assert isinstance(layer, MultiHeadAttention)
    padding = torch.zeros(2, length_of(example), dtype=torch.bool)
    padding[1, -3:] = True
    q, k, v = layer._heads(x)
    seen = layer._merge(attend_by_flex(layer.pattern, q, k, v, padding, compiled=False))
    torch.testing.assert_close(seen, layer.reference(x, padding), rtol=1e-4, atol=1e-5)


def test_a_bias_that_it_is_not_told_of_is_refused() -> None:
    pattern = PitchTime(scale=5).build(12, 2, (8,), True).pattern
    q = torch.randn(1, 2, 8, 6)
    with pytest.raises(ValueError, match="PitchTimePattern has a bias"):
        attend_by_flex(pattern, q, q, q, compiled=False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention's kernel needs a GPU")
@every_example
def test_the_compiled_kernel_has_the_values_and_gradients_of_the_reference(
    example: Example,
) -> None:
    width, heads = 48, 3
    layer = example.config.build(width, heads, example.shape, example.causal).cuda()
    layer.flex = True
    results = []
    for path in (layer.forward, layer.reference):
        torch.manual_seed(1)
        x = torch.randn(2, length_of(example), width, device="cuda", requires_grad=True)
        y = path(x)
        weighted = (y * torch.arange(width, device="cuda")).sum()
        results.append([y, *torch.autograd.grad(weighted, [x, *layer.parameters()])])
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=2e-2, atol=2e-2)
