"""Dropout of features and of attention weights."""

from __future__ import annotations

import pytest
import torch
from gpu.attention_cases import layer_of

from triptych.core.attention.backends.dispatch import attend
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative import Relative
from triptych.core.transformer import TransformerConfig

VARIANTS = [(Full(), (64,)), (Relative(max_distance=63), (64,)), (Local2D(2, 2, 1, 1), (8, 8, 1))]
every_variant = pytest.mark.parametrize(
    ("attention", "shape"), VARIANTS, ids=["full", "relative", "local2d"]
)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True])
@every_variant
def test_dropout_compiles_and_is_drawn_anew_each_time(
    attention: AttentionConfig, shape: tuple[int, ...], weights: bool
) -> None:
    p = (0.0, 0.3) if weights else (0.3, 0.0)
    config = TransformerConfig(
        n_layers=1, d_model=16, n_heads=2, dropout=p[0], attention_dropout=p[1], attention=attention
    )
    decoder = config.decoder(shape).train()
    torch.compiler.reset()
    # Tiles draw the dropped weights again in the backward pass: a compiler breaks its graph there.
    whole = not (weights and isinstance(attention, Relative))
    compiled = torch.compile(decoder, backend="aot_eager", fullgraph=whole)
    x = torch.randn(1, 64, 16)
    assert not torch.equal(compiled(x), compiled(x))
    torch.manual_seed(3)
    once = compiled(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(x), once)


@every_variant
def test_the_gradient_of_attention_drops_the_weights_that_its_output_dropped(
    attention: AttentionConfig, shape: tuple[int, ...]
) -> None:
    layer = layer_of(attention, 32, 2, shape).double()
    q, k, v, dy = torch.randn(4, 1, 2, 64, 16, dtype=torch.float64)
    v.requires_grad_()
    y = attend(layer.mask_pattern, layer.bias, q, k, v, dropout=0.5)
    (dv,) = torch.autograd.grad(y, v, dy)
    # The output is linear in the values: only with the same weights both sums are the same.
    torch.testing.assert_close((dv * v).sum(), (dy * y).sum())
    assert not torch.allclose(y, attend(layer.mask_pattern, layer.bias, q, k, v))


@every_variant
def test_a_layer_drops_weights_in_training_only(
    attention: AttentionConfig, shape: tuple[int, ...]
) -> None:
    layer = attention.build(8, 2, attention.mask_pattern(shape, True), dropout=0.5)
    x = torch.randn(1, 64, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    torch.testing.assert_close(layer(x), layer.reference(x))
