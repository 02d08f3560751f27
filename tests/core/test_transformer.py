from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from decoders import config
from gpu.attention_cases import CAUSAL, Example, length_of, name
from test_universal import HALTING, spread_halting
from torch import Tensor

from triptych.core.attention.cross import CrossAttention
from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.relative import Relative
from triptych.core.layers import GELU
from triptych.core.positions import PositionConfig, Rotary, Sinusoidal
from triptych.core.state import NO_CONTEXT, ForwardContext, Memory
from triptych.core.transformer import DepthConfig, Layers, Stack, TransformerConfig
from triptych.core.universal import Universal

EXACT = {"rtol": 0.0, "atol": 1e-12}


def decode(decoder: Stack, x: Tensor, prefix: int, context: ForwardContext = NO_CONTEXT) -> Tensor:
    """A decoder applied as it decodes: a prefill of `prefix` positions, then single steps."""
    state = decoder.init_state(*x.shape[:2], context)
    token_ids = torch.zeros(x.shape[:2]) if context.token_ids is None else context.token_ids
    begin = ForwardContext(token_ids=token_ids[:, :prefix])
    parts = [decoder(x[:, :prefix], begin, state)] if prefix else []
    for t in range(prefix, x.shape[1]):
        now = decoder.step_context(torch.tensor([t]), state)
        now = replace(now, token_ids=token_ids[:, t : t + 1])
        parts.append(decoder.step(x[:, t : t + 1], state, now))
    return torch.cat(parts, dim=1)


DEPTHS = [Layers(), Universal(), Universal(HALTING)]


@pytest.mark.parametrize("example", CAUSAL, ids=name)
@pytest.mark.parametrize("depth", [Layers(), Universal(HALTING)], ids=str)
def test_a_decoder_of_every_variant_steps_as_it_trains(
    example: Example, depth: DepthConfig
) -> None:
    decoder = spread_halting(config(attention=example.config, depth=depth).decoder(example.shape))
    decoder.double()
    x = 4 * torch.randn(2, length_of(example), 12, dtype=torch.float64)
    context = ForwardContext(token_ids=torch.randint(-1, 8, (2, length_of(example))))
    torch.testing.assert_close(decode(decoder, x, 5, context), decoder(x, context), **EXACT)


@pytest.mark.parametrize("depth", DEPTHS, ids=str)
@pytest.mark.parametrize("positions", [Sinusoidal(), Rotary()], ids=["sinusoids", "rotary"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("prefix", [0, 1, 4])
def test_a_decoder_with_cross_attention_steps_as_it_trains(
    norm: str, prefix: int, positions: PositionConfig, depth: DepthConfig
) -> None:
    decoder = config(norm_position=norm, positions=positions, depth=depth).decoder((9,), cross=True)
    spread_halting(decoder).double()
    x = torch.randn(3, 9, 12, dtype=torch.float64)
    memory = torch.randn(3, 6, 12, dtype=torch.float64)
    real = torch.arange(6).expand(3, -1) < torch.tensor([6, 3, 1]).unsqueeze(1)
    context = ForwardContext(memory=Memory(memory, real))
    torch.testing.assert_close(decode(decoder, x, prefix, context), decoder(x, context), **EXACT)


def test_padding_of_the_memory_is_never_read() -> None:
    decoder = config().decoder((5,), cross=True).double()
    x, memory = torch.randn(1, 5, 12).double(), torch.randn(1, 4, 12).double()
    longer = torch.cat([memory, torch.full((1, 3, 12), 1e3).double()], dim=1)
    real = torch.arange(7).unsqueeze(0) < 4
    torch.testing.assert_close(
        decoder(x, ForwardContext(memory=Memory(longer, real))),
        decoder(x, ForwardContext(memory=Memory(memory))),
        **EXACT,
    )


def test_cross_attention_to_padding_alone_is_zero_and_finite() -> None:
    layer = CrossAttention(12, 3).double()
    x = torch.randn(1, 2, 12, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(1, 80, 12, dtype=torch.float64)  # long enough for the fused kernel
    y = layer(x, layer.project_memory(Memory(memory, torch.zeros(1, 80, dtype=torch.bool))))
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    torch.testing.assert_close(y, layer.out_proj.bias.expand_as(y), **EXACT)


def test_an_encoder_reads_both_ways_and_not_its_padding() -> None:
    for attention in (None, Relative(max_distance=3)):
        more = {} if attention is None else {"attention": attention}
        encoder = config(**more).encoder((7,)).double()
        x = torch.randn(1, 7, 12, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(encoder(x)[0, 2, 0], x)
        assert (gradient[0] != 0).any(-1).all()
        real = torch.arange(7).unsqueeze(0) < 5
        torch.testing.assert_close(
            encoder(x, ForwardContext(real=real))[:, :5], encoder(x[:, :5]), **EXACT
        )


def test_pre_norm_ends_with_a_norm_and_post_norm_needs_none() -> None:
    x = torch.randn(1, 4, 12) * 30
    for norm in ("pre", "post"):
        y = config(norm_position=norm).decoder((4,))(x)
        torch.testing.assert_close(y.mean(-1), torch.zeros(1, 4), rtol=0.0, atol=1e-5)
    post, pre = (config(norm_position=norm).decoder((4,)).state_dict() for norm in ("post", "pre"))
    assert len(post) < len(pre)


@pytest.mark.parametrize(
    "wrong", [{"n_heads": 5}, {"n_layers": 0}, {"dropout": 1.0}, {"attention_dropout": -0.1}]
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TransformerConfig(**({"d_model": 12, "n_heads": 3} | wrong))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "shape"),
    [
        (Full(), (24,)),
        pytest.param(Full(), (800,), marks=pytest.mark.slow),
        pytest.param(Relative(max_distance=99), (300,), marks=pytest.mark.slow),
        pytest.param(Local1D(block=50), (300,), marks=pytest.mark.slow),
        (Local2D(4, 4, 2, 2), (16, 16, 1)),
    ],
)
def test_attention_compiles_to_one_graph(
    attention: AttentionConfig, shape: tuple[int, ...]
) -> None:
    sizes = {"d_model": 64, "n_heads": 2, "feed_forward": GELU(1024), "attention": attention}
    decoder = config(**sizes).decoder(shape)
    x = torch.randn(1, math.prod(shape), 64)
    torch.compiler.reset()
    compiled = torch.compile(decoder, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), decoder(x))


def test_rotary_positions_reach_every_layer_and_step_as_they_train() -> None:
    decoder = config(positions=Rotary()).decoder((9,)).double()
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    expected = decoder(x)
    torch.testing.assert_close(decode(decoder, x, 3), expected, **EXACT)
    for block in decoder.blocks:
        rotary, block.attention.rotary = block.attention.rotary, None
        assert not torch.allclose(decoder(x), expected)
        block.attention.rotary = rotary
