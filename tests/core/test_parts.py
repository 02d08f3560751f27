"""Laws of all norms, feed-forward layers and position encodings; new kinds join by themselves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from dataclass_rules import changeable_dataclasses
from gpu.attention_cases import WithRotary
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.full import Full
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.layers import (
    GELU,
    FeedForwardConfig,
    LayerNorm,
    NormConfig,
    ReLU,
    Residual,
    RMSNorm,
    SwiGLU,
)
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import NoPositions, PositionConfig, Rotary, RotaryEmbedding, raster
from triptych.core.transformer import TransformerConfig

EXACT = {"rtol": 0.0, "atol": 1e-12}
D, LENGTH = 12, 9
NORMS = NormConfig.__subclasses__()
FEED_FORWARDS = FeedForwardConfig.__subclasses__()
POSITIONS = PositionConfig.__subclasses__()
PARTS = [
    *({"norm": kind()} for kind in NORMS),
    *({"feed_forward": kind(16)} for kind in FEED_FORWARDS),
    *({"positions": kind()} for kind in POSITIONS),
    {"norm": RMSNorm(), "feed_forward": SwiGLU(16), "positions": Rotary()},
    {"norm_position": "post", "feed_forward": ReLU(16)},
]


def model_of(config: TransformerConfig) -> DecoderOnly:
    head = CategoricalHead(D, 7)
    torch.nn.init.normal_(head.logits.weight)
    return DecoderOnly(
        TokenEmbedding(7, D),
        config.positions.build(D, raster((LENGTH,))),
        config.decoder((LENGTH,)),
        head,
        d_model=D,
    ).double()


@pytest.mark.parametrize(
    ("attention", "parts"),
    [
        (attention, parts)
        for attention in (Full(), Relative(4, window=5), Local1D(3, 2))
        for parts in PARTS
        if not (isinstance(attention, Relative) and isinstance(parts.get("positions"), Rotary))
    ],
    ids=str,
)
def test_a_model_of_any_parts_steps_as_it_trains(parts: dict[str, object], attention: Full) -> None:
    base = TransformerConfig(2, D, 3, dropout=0.0, feed_forward=GELU(16), attention=attention)
    config = replace(base, **parts)  # type: ignore[arg-type]
    model, values = model_of(config), torch.randint(7, (2, LENGTH))
    expected = model(values)
    state = model.init_state(2, LENGTH, lookahead=2)
    stepped = [model.prefill(values[:, :3], state)]
    stepped += [model.step(values[:, t - 1 : t], torch.tensor([t]), state)[:, 0] for t in (4, 5)]
    torch.testing.assert_close(torch.stack(stepped, 1), expected[:, 3:6], **EXACT)
    again = model.step(values[:, 4:7], torch.arange(5, 8), state)
    torch.testing.assert_close(again, expected[:, 5:8], **EXACT)
    expected.square().sum().backward()
    unused = {name for name, value in model.named_parameters() if value.grad is None}
    assert not unused
    other = model_of(config)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(values), expected, **EXACT)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_position_encoding_is_one_vector_per_index(positions: type[PositionConfig]) -> None:
    encoding = positions().build(D, raster((4, 5)))
    index = torch.randint(20, (2, 3))
    vectors = encoding(index)
    assert vectors.shape == (2, 3, D)
    torch.testing.assert_close(vectors[1, 2], encoding(index[1, 2:])[0])


# Norms -------------------------------------------------------------------------------------------


def test_rms_norm_is_the_published_formula() -> None:
    norm = RMSNorm(epsilon=1e-3).build(D).double()
    torch.nn.init.normal_(norm.weight)  # type: ignore[arg-type]
    x = torch.randn(3, D, dtype=torch.float64) + 2
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected, **EXACT)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_layer_norm_is_the_published_formula() -> None:
    norm = LayerNorm(epsilon=1e-3).build(D).double()
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(3, D, dtype=torch.float64) + 2
    deviation = (x.var(-1, correction=0, keepdim=True) + 1e-3).sqrt()
    expected = (x - x.mean(-1, keepdim=True)) / deviation * norm.weight + norm.bias
    torch.testing.assert_close(norm(x), expected, **EXACT)


def test_the_two_positions_of_the_norm() -> None:
    x, norm = torch.randn(3, D), LayerNorm().build(D)
    pre, post = Residual(norm, "pre", 0.0), Residual(norm, "post", 0.0)
    torch.testing.assert_close(pre(x, lambda y: 2 * y), x + 2 * norm(x))
    torch.testing.assert_close(post(x, lambda y: 2 * y), norm(3 * x))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 1.0])
def test_an_impossible_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be above 0 and below 1"):
        RMSNorm(epsilon)


# Feed-forward ------------------------------------------------------------------------------------


def weights(layer: torch.nn.Module) -> dict[str, Tensor]:
    return {name.replace(".", "_"): value for name, value in layer.named_parameters()}


def test_swiglu_is_the_published_formula() -> None:
    layer, x = SwiGLU(16).build(D).double(), torch.randn(3, D, dtype=torch.float64)
    w = weights(layer)
    assert set(w) == {"gate_weight", "fc1_weight", "fc2_weight"}, "no biases"
    gate = x @ w["gate_weight"].T
    hidden = gate * gate.sigmoid() * (x @ w["fc1_weight"].T)
    torch.testing.assert_close(layer(x), hidden @ w["fc2_weight"].T, **EXACT)


@pytest.mark.parametrize(
    ("kind", "activation"), [(ReLU, torch.relu), (GELU, F.gelu)], ids=["relu", "gelu"]
)
def test_a_plain_feed_forward_layer_is_the_published_formula(
    kind: type[FeedForwardConfig], activation: object
) -> None:
    layer, x = kind(16).build(D).double(), torch.randn(3, D, dtype=torch.float64)
    w = weights(layer)
    hidden = activation(x @ w["fc1_weight"].T + w["fc1_bias"])  # type: ignore[operator]
    torch.testing.assert_close(layer(x), hidden @ w["fc2_weight"].T + w["fc2_bias"], **EXACT)


# Rotary positions --------------------------------------------------------------------------------


def test_rotary_is_the_published_rotation() -> None:
    rotary, x = RotaryEmbedding(6, base=100.0), torch.randn(6, dtype=torch.float64)
    for position in (0, 1, 17):
        found = rotary(x.view(1, 1, 1, 6), rotary.rotation(torch.tensor([position])))[0, 0, 0]
        for i in range(3):
            angle = position * 100.0 ** (-2 * i / 6)
            one, two = x[2 * i].item(), x[2 * i + 1].item()
            expected = (
                one * math.cos(angle) - two * math.sin(angle),
                one * math.sin(angle) + two * math.cos(angle),
            )
            assert found[2 * i : 2 * i + 2].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shift", [1, 100, 100_000])
def test_rotary_products_depend_on_the_distance_alone(shift: int) -> None:
    rotary, index = RotaryEmbedding(8), torch.arange(7)
    q, k = torch.randn(2, 2, 3, 7, 8, dtype=torch.float64).unbind(0)

    def logits(first: int) -> Tensor:
        rotation = rotary.rotation(index + first)
        return rotary(q, rotation) @ rotary(k, rotation).mT

    torch.testing.assert_close(logits(shift), logits(0), rtol=0.0, atol=1e-9)
    assert not torch.allclose(rotary(q, rotary.rotation(index)) @ k.mT, logits(0))


@torch.no_grad()
def test_rotary_attention_reads_distances_and_not_positions() -> None:
    """Two layers with a window of 3 read the last 5 positions, wherever they are."""
    attention = Relative(max_distance=1, window=3)
    config = TransformerConfig(
        2, D, 3, feed_forward=GELU(16), positions=NoPositions(), attention=WithRotary(attention)
    )
    decoder = config.decoder((20,)).double().eval()
    for block in decoder.blocks:
        block.attention.bias.table.zero_()
    last = torch.randn(1, 5, D, dtype=torch.float64)
    near, far = torch.randn(1, 2, D).double(), torch.randn(1, 13, D).double()
    outputs = [decoder(torch.cat([before, last], 1))[:, -1] for before in (near, far)]
    torch.testing.assert_close(*outputs, rtol=0.0, atol=1e-9)


def test_impossible_rotations_are_refused() -> None:
    with pytest.raises(ValueError, match="even width"):
        TransformerConfig(1, 9, 3, positions=Rotary()).decoder((5,))
    with pytest.raises(ValueError, match="Relative attention cannot be combined with rotary"):
        TransformerConfig(1, 12, 3, positions=Rotary(), attention=Relative()).decoder((5,))
    with pytest.raises(ValueError, match="base must be above 1"):
        Rotary(base=1.0)


def test_values_of_this_package_cannot_be_changed() -> None:
    assert changeable_dataclasses("triptych.core") <= {"CapturedAttention"}
