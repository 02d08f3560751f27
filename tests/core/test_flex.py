"""FlexAttention gives what the reference gives; its own kernel needs a GPU."""

from __future__ import annotations

import copy
import logging
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu.attention_cases import (
    EXAMPLES,
    Example,
    build,
    context,
    examples_of,
    inputs,
    layer_of,
    length_of,
    name,
)
from gpu.fake_cuda import fake_cuda

from triptych.core.attention.backends import dispatch, flex
from triptych.core.attention.backends.flex import attend_by_flex, flex_serves
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.mask import MaskPattern, SlidingWindow
from triptych.core.attention.multihead import MultiHeadAttention

SERVED = [
    each
    for each in [*EXAMPLES, *examples_of("own_attention")]
    if type(layer := build(each)).forward is MultiHeadAttention.forward and not layer.by_definition
]
"""Examples whose layers leave the choice of the backend to `dispatch.attend`."""
QUICK = ("Local1D(block=4, memory=6)-15", "WithRotary(inner=PitchTime(", "T5Buckets")
"""Beginnings of the names of examples that also run among the fast tests."""


class Graphs:
    """Backend of `torch.compile` that counts graphs and runs them as they are, on any device."""

    def __init__(self) -> None:
        self.operations: list[set[str]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.operations.append({str(node.target) for node in graph.graph.nodes})
        return graph.forward

    @property
    def count(self) -> int:
        return len(self.operations)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    found = Graphs()
    monkeypatch.setattr(flex, "COMPILER", found)
    return found


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(e, id=name(e), marks=[] if name(e).startswith(QUICK) else pytest.mark.slow)
        for e in SERVED
    ],
)
@torch.no_grad()
def test_the_pattern_and_its_scores_are_those_of_the_reference(
    example: Example, graphs: Graphs
) -> None:
    layer, x = build(example).float(), inputs(example).float()
    padding = torch.zeros(2, length_of(example), dtype=torch.bool)
    padding[1, -3:] = True
    now = layer.shared_context(x, context(x, padding))
    q, k, v = layer.heads(x, now.rotation)
    y = attend_by_flex(
        layer.mask_pattern,
        layer.bias,
        q,
        layer.for_queries(k),
        layer.for_queries(v),
        token_classes=now.token_classes,
        real=~padding,
    )
    assert graphs.count == 1
    torch.testing.assert_close(layer.merge(y), layer.reference(x, now), rtol=1e-4, atol=1e-5)


def attend_to_random(layer: MultiHeadAttention, batch: int, length: int, **options: Any) -> None:
    dtype = layer.out_proj.weight.dtype
    q, k, v = torch.randn(3, batch, 2, length, 16, dtype=dtype)
    classes = torch.zeros(batch, length, dtype=torch.int64) if layer.uses_token_ids else None
    y = attend_by_flex(layer.mask_pattern, layer.bias, q, k, v, token_classes=classes, **options)
    assert y.shape == q.shape


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith("triptych")]


@pytest.mark.slow
@torch.no_grad()
def test_variants_of_one_process_do_not_share_a_limit_of_graphs(
    graphs: Graphs, caplog: pytest.LogCaptureFixture
) -> None:
    """PyTorch runs the definition from the ninth graph of a function on, or raises an error."""
    for example in SERVED:
        config, shape, causal = example
        for _ in range(2):  # models
            pattern = config.mask_pattern(shape, causal)
            layers = [config.build(32, 2, pattern) for _ in range(2)]
            for dtype in (torch.float32, torch.bfloat16):
                for is_padded in (False, True):
                    before = graphs.count
                    for batch in (2, 3):
                        real = torch.ones(batch, math.prod(shape), dtype=torch.bool)
                        for layer in layers:
                            mask = real if is_padded else None
                            attend_to_random(layer.to(dtype), batch, math.prod(shape), real=mask)
                    assert graphs.count - before <= 2, "one of a batch size, one of any"
    assert graphs.count > 8
    assert not said(caplog)


@torch.no_grad()
def test_a_function_that_meets_its_limit_is_compiled_anew(
    graphs: Graphs, caplog: pytest.LogCaptureFixture
) -> None:
    layer = layer_of(Local1D(4, 4), 32, 2, (256,))
    with torch._dynamo.config.patch(recompile_limit=1), caplog.at_level(logging.WARNING):
        for batch in (2, 3):
            attend_to_random(layer, batch, 256)
    assert graphs.count == 2
    assert [text.partition(":")[0] for text in said(caplog)] == [
        "attention by BlockWindow has met too many kinds of arguments and is compiled anew"
    ]


@torch.no_grad()
def test_lengths_share_block_masks_which_copies_do_not_take(graphs: Graphs) -> None:
    layer = layer_of(Local1D(4, 4), 32, 2, (256,))
    for length in (5, 100, 128, 129, 200, 256):
        attend_to_random(layer, 2, length)
    pattern = layer.mask_pattern
    assert [*pattern.kernels.masks] == [(128, "cpu"), (256, "cpu")]
    assert graphs.count == 2
    image = layer_of(Local2D(2, 2, 1, 1), 32, 2, (10, 13))
    for length in (3, 26, 130):
        attend_to_random(image, 2, length)
    assert [*image.mask_pattern.kernels.masks] == [(3, "cpu"), (26, "cpu"), (130, "cpu")]
    for other in (copy.deepcopy(pattern), pickle.loads(pickle.dumps(pattern))):
        assert isinstance(other, MaskPattern)
        assert not other.kernels.masks
        assert not other.kernels.functions
    for length in range(128, 128 * (flex.MOST_KEPT + 3), 128):
        flex._make_mask(SlidingWindow(True, 3), length, "cpu")
        flex._make_mask(pattern, length, "cpu")
    assert len(pattern.kernels.masks) == flex.MOST_KEPT


@torch.no_grad()
def test_a_compiled_model_reads_its_block_mask(graphs: Graphs) -> None:
    """A mask that each step makes would cost more than the attention."""
    layer = layer_of(Local1D(4, 4), 32, 2, (256,))
    compiled = torch.compile(attend_to_random, backend=graphs)
    for _ in range(3):
        compiled(layer, 2, 256)
    mask = next(iter(layer.mask_pattern.kernels.masks.values()))
    compiled(layer, 2, 256)
    assert next(iter(layer.mask_pattern.kernels.masks.values())) is mask
    assert any("flex_attention" in name for name in graphs.operations[-1])
    assert not any("argsort" in name for names in graphs.operations for name in names)


def test_what_the_kernel_does_not_serve_goes_elsewhere() -> None:
    def served(width: int, dtype: torch.dtype) -> bool:
        return flex_serves(torch.empty(1, 2, 8, width, dtype=dtype))

    assert served(32, torch.float32)
    assert served(16, torch.bfloat16)
    assert not served(15, torch.float32)  # narrow heads
    assert not served(32, torch.float64)


@pytest.mark.parametrize(
    ("device", "dropout", "width", "deterministic", "by_flex"),
    [
        ("cuda", 0.0, 32, False, True),
        ("cuda", 0.1, 32, False, False),
        ("cuda", 0.0, 8, False, False),
        ("cuda", 0.0, 32, True, False),
        ("cpu", 0.0, 32, False, False),
    ],
)
def test_only_cuda_without_dropout_takes_it(
    device: str,
    dropout: float,
    width: int,
    deterministic: bool,
    by_flex: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
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
