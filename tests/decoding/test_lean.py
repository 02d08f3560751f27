"""A ready model without what only training needs: activations in products, calls without hooks."""

from __future__ import annotations

import copy
import pickle
from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from triptych.core.attention.capture import capture_attention
from triptych.core.attention.full import Full
from triptych.core.block import Block
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.layers import FeedForward
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import Sinusoid
from triptych.core.processor import has_wide_vectors
from triptych.core.transformer import TransformerConfig
from triptych.decoding import quantize as weights
from triptych.decoding.lean import gelu_of_a_row, unchanged
from triptych.decoding.matrices import OneDNN, Plain, RowSum
from triptych.decoding.quantize import TOLERANCE, for_decoding

needs_onednn = pytest.mark.skipif(
    not has_wide_vectors(), reason="oneDNN packs bfloat16 on processors with AVX-512 alone"
)


@pytest.fixture
def model() -> DecoderOnly:
    config = TransformerConfig(n_layers=2, d_model=32, n_heads=4, d_ff=64, attention=Full())
    return DecoderOnly(
        TokenEmbedding(11, 32),
        Sinusoid(32),
        config.decoder((20,)),
        CategoricalHead(32, 11),
        d_model=32,
    ).eval()


def only(kind: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every matrix is of this kind."""
    monkeypatch.setattr(weights, "candidates", lambda *_: [kind])
    monkeypatch.setattr(weights, "SMALL", {False: [], True: []})


def packed(linear: nn.Linear) -> OneDNN:
    return OneDNN(linear, 8)


@needs_onednn
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_onednn_applies_the_activation_with_the_product(
    activation: Literal["relu", "gelu"], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, x = FeedForward(40, 48, activation), torch.randn(8, 1, 40)
    expected = block(x)
    for kind, then in ((packed, unchanged), (Plain, block.activation)):
        only(kind, monkeypatch)
        fast = for_decoding(nn.Sequential(block), name, rows=8)[0]
        assert fast.activation is then
        y = fast(x.to(torch.float32 if name == "fp32" else torch.bfloat16)).float()
        assert (y - expected).norm() / expected.norm() < TOLERANCE[name]


@needs_onednn
def test_a_matrix_that_serves_elsewhere_too_keeps_its_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(packed, monkeypatch)
    first, second = FeedForward(40, 48, "gelu"), FeedForward(40, 48, "relu")
    second.widen = first.widen
    model = nn.ModuleList([first, second, first.widen])
    fast = for_decoding(model, rows=8)
    x = torch.randn(8, 1, 40)
    for ready, given in zip(fast, model, strict=True):
        torch.testing.assert_close(ready(x), given(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(1, 1, 48), (48,), (1, 1, 5), (3, 2, 4)])
def test_gelu_of_a_row_is_gelu(size: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(size, dtype=dtype)
    y = gelu_of_a_row(x)
    assert y.is_contiguous()
    torch.testing.assert_close(
        y, F.gelu(x), rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-6
    )


def test_gelu_is_changed_for_one_row_that_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    only(Plain, monkeypatch)
    block = nn.Sequential(FeedForward(40, 48, "gelu"))
    assert for_decoding(block)[0].activation is gelu_of_a_row
    assert for_decoding(block, compiled=True)[0].activation is F.gelu
    assert for_decoding(block, rows=2)[0].activation is F.gelu
    block[0].activation = F.relu
    assert for_decoding(block)[0].activation is F.relu


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_several_rows_pass_where_one_was_expected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a prefix does; row sums of a width that is no whole number of their blocks."""
    only(RowSum, monkeypatch)
    block, x = FeedForward(32, 200, "gelu"), torch.randn(1, 3, 32)
    fast = for_decoding(nn.Sequential(block), name)
    y = fast(x.to(torch.float32 if name == "fp32" else torch.bfloat16)).float()
    assert (y - block(x)).norm() / block(x).norm() < TOLERANCE[name]


def test_its_parts_are_found_at_once_and_are_still_its_parts(model: DecoderOnly) -> None:
    fast = for_decoding(model)
    block = fast.decoder.blocks[0]
    assert isinstance(block, Block)
    assert vars(block.attention)["qkv_proj"] is block.attention.qkv_proj
    assert {name for name, _ in fast.named_modules()} == {name for name, _ in model.named_modules()}
    block.feed_forward.narrow = nn.Identity()
    assert isinstance(dict(block.named_modules())["feed_forward.narrow"], nn.Identity)
    assert isinstance(block.feed_forward.narrow, nn.Identity)


def test_a_ready_model_can_be_copied_pickled_and_made_ready_again(
    model: DecoderOnly, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(Plain, monkeypatch)
    fast = for_decoding(model)
    values = torch.randint(11, (2, 9))
    wanted = model(values)
    copies = [copy.deepcopy(fast), pickle.loads(pickle.dumps(fast)), for_decoding(fast)]
    for again in copies:
        assert type(again) is type(fast)
        torch.testing.assert_close(again(values), wanted)
        inner = again.decoder.blocks[0].attention
        assert vars(inner)["qkv_proj"] is inner._modules["qkv_proj"]
    assert type(fast).__bases__ == (DecoderOnly,)
    assert type(model) is DecoderOnly


def test_hooks_are_passed_by_and_recording_is_not(model: DecoderOnly) -> None:
    fast, values = for_decoding(model), torch.randint(11, (2, 9))
    seen: list[str] = []
    for one in (model, fast):
        one.decoder.register_forward_hook(lambda *_, one=one: seen.append(type(one).__name__))
        with capture_attention(one) as found:
            one(values)
        assert len(found.own) == 2
    assert len(seen) == 1
