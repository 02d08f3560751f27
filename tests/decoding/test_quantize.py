"""Reduced precision: predictions and likelihoods close to float32, the given model untouched."""

from __future__ import annotations

import copy
import sys
import warnings

import pytest
import torch
from decoders import decoder_only
from random_head import with_random_head
from torch import nn

from triptych.core.attention.relative import Relative
from triptych.core.layers import GELU
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.decoding.execution import quantize
from triptych.decoding.generate import generate
from triptych.decoding.sampling import SampleRequest
from triptych.errors import UserError

SIZES = {"n_layers": 2, "d_model": 32, "n_heads": 4, "feed_forward": GELU(64)}
TOLERANCE = {"bf16": 0.03, "int8": 0.06}
"""Relative error of logits after two layers of width 32."""


@pytest.fixture
def model() -> DecoderOnly:
    return decoder_only(11, (20,), **SIZES, attention=Relative(4, window=7), dropout=0.1)


def cached(model: DecoderOnly, values: torch.Tensor) -> torch.Tensor:
    state = model.init_state(values.shape[0], values.shape[1])
    parts = [model.prefill(values[:, :5], state)]
    for t in range(6, values.shape[1]):
        parts.append(model.step(values[:, t - 1 : t], torch.tensor([t]), state)[:, 0])
    return torch.stack(parts, dim=1).float()


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
@pytest.mark.parametrize("rows", [1, 4])
@torch.no_grad()
def test_cached_steps_stay_close_to_float32(model: DecoderOnly, dtype: str, rows: int) -> None:
    values = torch.randint(11, (rows, 20))
    expected = cached(model.eval(), values)
    error = (cached(quantize(model, dtype), values) - expected).norm() / expected.norm()
    assert 0 < error < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
@torch.no_grad()
def test_likelihoods_stay_close_to_float32_and_are_in_float32(
    model: DecoderOnly, dtype: str
) -> None:
    values = torch.randint(11, (8, 20))
    expected = model.eval().nll(values)
    found = quantize(model, dtype).nll(values)
    assert found.dtype == torch.float32
    assert found.mean() != expected.mean()
    torch.testing.assert_close(found.mean(), expected.mean(), rtol=0.02, atol=0.0)


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_the_given_model_stays_as_it_is(model: DecoderOnly, dtype: str) -> None:
    before = copy.deepcopy(model.state_dict())
    reduced = quantize(model, dtype)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    torch.testing.assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert (
        generate(reduced, SampleRequest(count=3, length=5)).float().std() > 0
    )  # shares no storage with it
    assert quantize(model, "fp32") is model


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
@pytest.mark.parametrize("share", ["all", "none"])
@torch.no_grad()
def test_a_translator_and_the_output_that_it_shares(dtype: str, share: str) -> None:
    sizes = {"source_vocabulary": 19, "target_vocabulary": 19, "share_embeddings": share}
    model = EncoderDecoder(TransformerConfig(**SIZES), **sizes)
    with_random_head(model).eval()
    reduced = quantize(model, dtype)
    if dtype == "int8":
        assert not any(isinstance(part, nn.Linear) for part in reduced.modules())
    assert (model.head.logits.weight is model.target_embedding.table.weight) == (share == "all")
    source = torch.randint(19, (3, 6))
    logits = []
    for one in (model, reduced):
        state = one.init_state(3, 4, condition=one.encode(source))
        logits.append(one.step(source[:, :1], torch.tensor([0]), state).float())
    assert (logits[0] - logits[1]).norm() / logits[0].norm() < TOLERANCE[dtype]


@torch.no_grad()
def test_int8_has_a_scale_for_each_output() -> None:
    layer = nn.Linear(40, 48)
    layer.weight[0] *= 1000  # with one scale for the matrix, the other outputs would be zero
    x = torch.randn(4, 40)
    found = quantize(nn.Sequential(layer), "int8")(x)
    expected = layer(x)
    assert (found - expected)[:, 1:].norm() / expected[:, 1:].norm() < 0.02


def test_no_warning_reaches_the_user(model: DecoderOnly) -> None:
    torch.set_warn_always(True)  # otherwise one that another test has seen would not come again
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for dtype in ("fp32", "bf16", "int8"):
                generate(quantize(model, dtype), SampleRequest(count=1, length=3))
    finally:
        torch.set_warn_always(False)


def test_bad_requests_are_refused(model: DecoderOnly, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="fp32, bf16, int8, got fp16"):
        quantize(model, "fp16")
    with pytest.raises(UserError, match="int8 needs a CPU; this model is on meta"):
        quantize(copy.deepcopy(model).to("meta"), "int8")
    monkeypatch.setitem(sys.modules, "torch.ao.quantization", None)
    with pytest.raises(UserError, match=r"int8 needs torch\.ao\.quantization"):
        quantize(model, "int8")
