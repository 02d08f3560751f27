"""The laws that every attention variant obeys, in double precision, at every position.

A variant takes part by standing in core/attention; `BORDERS` say on which sizes. The ideas of
`own_attention` take part, and those of a module that the variable ATTENTION names.
"""

from __future__ import annotations

import os
import pkgutil

import pytest
import torch
from gpu.attention_cases import (
    Example,
    WithRotary,
    build,
    context,
    examples_of,
    inputs,
    length_of,
    name,
    step,
)

from gpu import attention_cases
from triptych.core import attention
from triptych.core.attention.full import Full
from triptych.core.attention.multihead import AttentionConfig, MultiHeadAttention
from triptych.core.attention.relative_bias import ScalarBias
from triptych.core.state import DecodingState
from triptych.core.transformer import TransformerConfig

EXACT = {"rtol": 0.0, "atol": 1e-12}
PARTS = {"backends", "cross", "mask", "multihead", "relative_bias"}
"""Modules of core/attention that hold no variant."""
OWN = ["own_attention", *filter(None, [os.environ.get("ATTENTION")])]
EXAMPLES = [*attention_cases.EXAMPLES, *(e for module in OWN for e in examples_of(module))]
CAUSAL = [example for example in EXAMPLES if example.causal]
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=name)
every_causal_example = pytest.mark.parametrize("example", CAUSAL, ids=name)


def right_padding(example: Example, missing: int) -> torch.Tensor:
    padding = torch.zeros(2, length_of(example), dtype=torch.bool)
    padding[1, length_of(example) - missing :] = True
    return padding


def test_the_suite_sees_every_variant_and_each_decodes() -> None:
    """A new file in core/attention takes part by itself."""
    modules = {type(example.config).__module__ for example in CAUSAL}
    files = {module.name for module in pkgutil.iter_modules(attention.__path__)}
    variants = {f"{attention.__name__}.{name}" for name in files if name not in PARTS}
    assert variants <= modules


def run_steps(
    layer: MultiHeadAttention, x: torch.Tensor, state: dict[str, torch.Tensor], first: int = 0
) -> torch.Tensor:
    steps = [
        step(layer, x[:, t : t + 1], torch.tensor([t]), state) for t in range(first, x.shape[1])
    ]
    return torch.cat(steps, dim=1)


@every_example
def test_no_position_sees_the_future_and_a_number_depends_on_the_distance(example: Example) -> None:
    """Stands first, because every other test of a layer fails with it."""
    layer, key = build(example), torch.arange(length_of(example))
    query, bias = key.unsqueeze(1), layer.bias
    seen = layer.mask_pattern.visible(query, key)
    assert not (example.causal and seen.triu(1).any()), "a position sees the future"
    if isinstance(bias, ScalarBias):
        moved = bias.value(bias.heads, query + bias.period, key + bias.period)
        same = torch.allclose(moved, bias.value(bias.heads, query, key))
        assert same, "the bias depends on more than the distance of query and key"


@every_example
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.usefixtures("backend")
def test_the_fast_path_has_values_and_gradients_of_the_reference(
    example: Example, padded: bool
) -> None:
    layer, padding = build(example), right_padding(example, 3) if padded else None
    weights = torch.randn_like(inputs(example))
    results = []
    for path in (layer.forward, layer.reference):
        torch.manual_seed(1)
        x = inputs(example).requires_grad_()
        y = path(x, context(x, padding))
        results.append([y, *torch.autograd.grad(y, [x, *layer.parameters()], weights)])
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, **EXACT)


@every_causal_example
@pytest.mark.parametrize("capacity", [1, 4])
def test_steps_on_cache_views_are_the_forward_pass(example: Example, capacity: int) -> None:
    """The views are made anew after `capacity` positions."""
    layer, x = build(example), inputs(example)
    state = layer.init_cache(2, length_of(example))
    steps = []
    for t in range(length_of(example)):
        views = layer.cache_view(state, t // capacity * capacity + capacity)
        steps.append(step(layer, x[:, t : t + 1], torch.tensor([t]), views))
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x, context(x)), **EXACT)


@every_causal_example
@pytest.mark.parametrize(("at_once", "kept"), [(2, 2), (5, 2), (4, 1), (7, 3)])
def test_steps_of_several_positions_are_the_forward_pass(
    example: Example, at_once: int, kept: int
) -> None:
    """Also where the last ones of each step turn out wrong and are taken anew: drafts."""
    layer, x = build(example), inputs(example)
    length = length_of(example)
    state = layer.init_cache(2, length, at_once - 1)
    result, t = [layer(x[:, :1], context(x[:, :1]), state)], 1
    while t < length:
        positions = torch.arange(t, min(t + at_once, length))
        wrong = torch.randn_like(x[:, positions])
        wrong[:, :kept] = x[:, positions[:kept]]
        views = layer.cache_view(state, int(positions[-1]) + 1)
        result.append(step(layer, wrong, positions, views)[:, :kept])
        t += result[-1].shape[1]
    torch.testing.assert_close(torch.cat(result, dim=1), layer(x, context(x)), **EXACT)


@every_causal_example
def test_prefill_of_any_length_and_then_steps_is_the_forward_pass(example: Example) -> None:
    layer, x = build(example), inputs(example)
    expected, length = layer(x, context(x)), length_of(example)
    for prefix in range(length + 1) if length < 16 else (0, 1, 2, 7, length // 2, length - 1):
        state = layer.init_cache(2, length)
        result = [layer(x[:, :prefix], context(x[:, :prefix]), state)] if prefix else []
        if prefix < length:
            result.append(run_steps(layer, x, state, prefix))
        torch.testing.assert_close(torch.cat(result, dim=1), expected, **EXACT)


@every_causal_example
def test_the_state_is_bounded_and_stays_where_it_is(example: Example) -> None:
    layer, x = build(example), inputs(example)
    state = layer.init_cache(2, length_of(example))
    before = {key: (tensor.data_ptr(), tensor.shape) for key, tensor in state.items()}
    assert all(tensor.shape[0] == 2 for tensor in state.values())
    run_steps(layer, x, state)
    assert {key: (tensor.data_ptr(), tensor.shape) for key, tensor in state.items()} == before


@every_example
@pytest.mark.usefixtures("backend")
def test_every_position_that_should_be_seen_is_seen(example: Example) -> None:
    """Coverage against the definition: gradients reach exactly the keys that are allowed."""
    layer, x = build(example), inputs(example, batch=1).requires_grad_()
    position = torch.arange(length_of(example))
    allowed = layer.mask_pattern.visible(position[:, None], position[None, :])
    y = layer(x, context(x))
    for t in range(length_of(example)):
        (gradient,) = torch.autograd.grad(y[0, t].sum(), x, retain_graph=True)
        seen = (gradient[0] != 0).any(-1)
        assert torch.equal(seen, allowed[t] | (position == t)), f"position {t}"


@every_example
@pytest.mark.usefixtures("backend")
def test_a_row_alone_is_the_row_in_its_batch(example: Example) -> None:
    layer, x = build(example), inputs(example, batch=3)
    together = layer(x, context(x))
    for row in range(3):
        torch.testing.assert_close(
            layer(x[row : row + 1], context(x[row : row + 1]))[0], together[row], **EXACT
        )


@every_example
@pytest.mark.usefixtures("backend")
def test_padding_changes_nothing(example: Example) -> None:
    """What stands on padded positions is never read by real ones."""
    layer, x = build(example), inputs(example)
    padding = right_padding(example, 4)
    other = torch.where(padding.unsqueeze(-1), torch.full_like(x, 1e3), x)
    real = ~padding
    torch.testing.assert_close(
        layer(other, context(other, padding))[real], layer(x, context(x, padding))[real], **EXACT
    )


@every_causal_example
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.usefixtures("backend")
def test_the_beginning_of_a_sequence_with_padding(example: Example, length: int) -> None:
    """Of fewer positions than a window, a block or a stride: as in the whole sequence."""
    layer, x = build(example), inputs(example)
    padding = torch.zeros(2, length, dtype=torch.bool)
    padding[1, length // 2 + 1 :] = True
    whole = layer(x, context(x))[:, :length]
    beginning = x[:, :length]
    y = layer(beginning, context(beginning, padding))
    torch.testing.assert_close(y[~padding], whole[~padding], **EXACT)
    slow = layer.reference(beginning, context(beginning, padding))
    torch.testing.assert_close(y, slow, **EXACT)


@every_example
@pytest.mark.usefixtures("backend")
def test_a_row_of_padding_alone_is_finite_with_its_gradients(example: Example) -> None:
    layer, x = build(example), inputs(example).requires_grad_()
    padding = torch.zeros(2, length_of(example), dtype=torch.bool)
    padding[1] = True
    y = layer(x, context(x, padding))
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    nothing = torch.nn.functional.linear(torch.zeros_like(x[1]), layer.out_proj.weight)
    torch.testing.assert_close(y[1], nothing + layer.out_proj.bias, **EXACT)


@every_causal_example
def test_reordering_the_state_is_exact(example: Example) -> None:
    layer, x = build(example), inputs(example, batch=3)
    length, rows = length_of(example), torch.tensor([2, 0, 0])
    middle = length // 2
    state = layer.init_cache(3, length)
    layer(x[:, :middle], context(x[:, :middle]), state)
    DecodingState([state], [None], None).reorder(rows)
    continued = torch.cat([x[rows, :middle], x[:, middle:]], dim=1)
    torch.testing.assert_close(
        run_steps(layer, continued, state, middle),
        layer(continued, context(continued))[:, middle:],
        **EXACT,
    )


@every_causal_example
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("backend")
def test_lower_precision_stays_near_double(example: Example, dtype: torch.dtype) -> None:
    layer, x = build(example), inputs(example)
    exact = layer(x, context(x))
    low = layer.to(dtype)(x.to(dtype), context(x)).double()
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(low, exact, rtol=0.0, atol=tolerance)


@every_example
def test_every_learned_tensor_is_trained_and_saved(example: Example) -> None:
    """A relative table that is a plain tensor would be neither."""
    layer, x = build(example), inputs(example)
    assert layer.state_dict().keys() == dict(layer.named_parameters()).keys()
    layer(x, context(x)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    again = build(example)
    assert not torch.allclose(again(x, context(x)), layer(x, context(x)))
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again(x, context(x)), layer(x, context(x)), **EXACT)


def test_prefill_refuses_padding() -> None:
    layer, x = build(Example(Full(), (13,))), torch.randn(2, 13, 12).double()
    padding = torch.zeros(2, 13, dtype=torch.bool)
    with pytest.raises(ValueError, match="prefill does not support padding"):
        layer(x, context(x, padding), layer.init_cache(2, 13))


@pytest.mark.parametrize(
    "kind", dict.fromkeys(type(e.config) for e in EXAMPLES if type(e.config) is not WithRotary)
)
def test_an_encoder_takes_the_variants_that_read_both_ways(kind: type[AttentionConfig]) -> None:
    both_ways = any(not e.causal for e in EXAMPLES if type(e.config) is kind)
    assert kind.causal_only == (not both_ways)
    transformer = TransformerConfig(n_layers=1, d_model=12, n_heads=3, attention=kind())
    if both_ways:
        assert not transformer.encoder((2, 6)).causal
    else:
        with pytest.raises(ValueError, match=f"{kind.__name__} attention is causal"):
            transformer.encoder((2, 6))
