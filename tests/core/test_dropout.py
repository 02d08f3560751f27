"""Dropout of features and of attention weights: shares, independence, and the same mask twice."""

from __future__ import annotations

import pytest
import torch

from triptych.core.attention.backends import passes
from triptych.core.attention.backends.dropout import Dropped
from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.relative import Relative
from triptych.core.transformer import TransformerConfig


def test_dropout_keeps_the_mean_and_drops_the_share_that_was_asked_for() -> None:
    torch.manual_seed(0)
    like = torch.empty(8, 128, 512)
    dropped = Dropped.draw(0.1, 8, 128 * 512, like)
    assert dropped is not None
    factors = dropped.factors(like, 5, 0)
    assert abs(float((factors == 0).float().mean()) - 26 / 256) < 2e-3
    assert abs(float(factors.mean()) - 1) < 2e-3
    rows = (factors == 0).float()
    shared = (rows[:, :-1] * rows[:, 1:]).mean() / rows.mean() ** 2
    assert abs(float(shared) - 1) < 0.05  # neighbours are dropped independently of each other
    heads = (rows[:-1] * rows[1:]).mean() / rows.mean() ** 2
    assert abs(float(heads) - 1) < 0.05
    other = (dropped.factors(like, 6, 0) == 0).float()
    assert abs(float((other * rows).mean() / rows.mean() ** 2) - 1) < 0.05
    assert Dropped.draw(0.0, 8, 100, like) is None


def test_each_row_of_each_tile_reads_from_another_place() -> None:
    like = torch.empty(1, 2, 3)
    dropped = Dropped.draw(0.5, 70, 6, like)
    assert dropped is not None
    places = [
        dropped.factors(like, tile, row).storage_offset()
        for tile in range(1000)
        for row in range(70)
    ]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("share", [(0.3, 0.0), (0.0, 0.3)], ids=["features", "weights"])
@pytest.mark.parametrize("attention", [Full(), Relative(max_distance=63), Local2D(4, 4, 2, 2)])
def test_a_compiler_follows_dropout_and_it_is_drawn_anew_each_time(
    attention: AttentionConfig, share: tuple[float, float]
) -> None:
    shape = (8, 8, 1) if isinstance(attention, Local2D) else (64,)
    config = TransformerConfig(
        n_layers=1,
        d_model=16,
        n_heads=2,
        dropout=share[0],
        attention_dropout=share[1],
        attention=attention,
    )
    decoder = config.decoder(shape).train()
    torch.compiler.reset()
    compiled = torch.compile(decoder, backend="aot_eager", fullgraph=True)
    x = torch.randn(1, 64, 16)
    assert not torch.equal(compiled(x), compiled(x))
    torch.manual_seed(3)
    once = compiled(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(x), once)


@pytest.mark.parametrize("kept", [0, 2**20])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("attention", [Full(), Relative(max_distance=63), Local2D(4, 4, 2, 2)])
def test_the_gradient_of_attention_drops_what_its_output_dropped(
    attention: AttentionConfig, compiled: bool, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "KEPT", kept)
    shape = (8, 8, 1) if isinstance(attention, Local2D) else (64,)
    pattern = attention.build(32, 2, shape, True).double().pattern
    q, k, v, dy = torch.randn(4, 1, 2, 64, 16, dtype=torch.float64)
    v.requires_grad_()
    torch.compiler.reset()
    attend = pattern.attend
    if compiled:
        attend = torch.compile(attend, backend="aot_eager", fullgraph=True)
    y = attend(q, k, v, None, 0.5)
    (dv,) = torch.autograd.grad(y, v, dy)
    # The output is linear in the values: only with the same weights both sums are the same.
    torch.testing.assert_close((dv * v).sum(), (dy * y).sum())
    whole = attend(q, k, v, None, 0.0)
    assert not torch.allclose(y, whole)
