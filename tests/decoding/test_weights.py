"""Matrices made ready for decoding: every kernel against the plain model."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder, Tie
from triptych.core.positions import Sinusoid
from triptych.core.processor import has_matrix_units, has_wide_vectors
from triptych.core.transformer import TransformerConfig
from triptych.decoding import quantize as subject
from triptych.decoding.generate import sample
from triptych.decoding.matrices import Columns, Int8, OneDNN, Plain, RowSum
from triptych.decoding.quantize import (
    SMALL,
    TOLERANCE,
    bytes_of_a_step,
    candidates,
    fastest,
    for_decoding,
    is_small,
)
from triptych.decoding.sampling import Sampling

SIZES = TransformerConfig(
    n_layers=2, d_model=32, n_heads=4, d_ff=64, dropout=0.1, attention=Relative(4, window=7)
)
KINDS = [("fp32", 1), ("fp32", 4), ("bf16", 1), ("bf16", 4), ("int8", 1), ("int8", 4)]


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "SMALL", {False: [], True: []})


@pytest.fixture
def model() -> DecoderOnly:
    return DecoderOnly(
        TokenEmbedding(11, 32), Sinusoid(32), SIZES.decoder((20,)), CategoricalHead(32, 11),
        d_model=32, dropout=0.1,
    )  # fmt: skip


def linear(outputs: int = 48, inputs: int = 40, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    return layer.requires_grad_(False)


def plain_steps(model: DecoderOnly, values: torch.Tensor) -> torch.Tensor:
    state = model.init_cache(values.shape[0], values.shape[1])
    parts = [model.prefill(values[:, :5], state)]
    for t in range(6, values.shape[1]):
        parts.append(model.step(values[:, t - 1], torch.tensor(t), state))
    return torch.stack(parts, dim=1).float()


@pytest.mark.parametrize(("weights", "rows"), KINDS)
@torch.no_grad()
def test_a_model_made_ready_predicts_what_the_plain_one_does(
    model: DecoderOnly, weights: str, rows: int
) -> None:
    values = torch.randint(11, (rows, 20))
    expected = plain_steps(model.eval(), values)
    fast = for_decoding(model, weights, rows=rows)
    tolerance = {"fp32": 1e-5, "bf16": 0.05, "int8": 0.1}[weights]
    torch.testing.assert_close(plain_steps(fast, values), expected, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize(("weights", "rows"), KINDS)
def test_every_linear_is_replaced_and_the_original_stays(
    model: DecoderOnly, weights: str, rows: int
) -> None:
    before = copy.deepcopy(model.state_dict())
    fast = for_decoding(model, weights, rows=rows)
    assert not [name for name, part in fast.named_modules() if isinstance(part, nn.Linear)]
    assert sum(isinstance(part, nn.Linear) for part in model.modules()) == 9
    assert model.training
    assert not fast.training
    assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    torch.testing.assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert sample(fast, batch=rows, length=5).float().std() > 0  # nothing is shared with it


@pytest.mark.parametrize("weights", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("tie", ["all", "none"])
@torch.no_grad()
def test_a_translator_and_the_output_it_shares(weights: str, tie: str) -> None:
    model = EncoderDecoder.build(
        TransformerConfig(n_layers=2, d_model=32, n_heads=4, d_ff=64),
        source_vocabulary=19, target_vocabulary=19, tie=tie,
    ).eval()  # fmt: skip
    fast = for_decoding(model, weights, rows=3)
    assert fast.output is not None
    assert not isinstance(fast.output, nn.Linear)
    assert (model.output is None) == (tie == "all")
    source = torch.randint(19, (3, 6))
    results = []
    for one in (model, fast):
        state = one.init_cache(one.encode(source), None, 4)
        results.append(one.step(source[:, 0], torch.tensor(0), state).float())
    error = (results[0] - results[1]).norm() / results[0].norm()
    assert error < {"fp32": 1e-5, "bf16": 0.02, "int8": 0.05}[weights]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("kind", [Plain, RowSum, OneDNN, Columns, Int8])
def test_each_kernel_is_the_product(kind: type, rows: int, bias: bool) -> None:
    """Also the ones that this processor would not choose, as far as it can run them."""
    layer, x = linear(bias=bias), torch.randn(2, rows, 40)
    kernel = OneDNN(layer, rows) if kind is OneDNN else kind(layer)
    for x in (torch.randn(1, 40), torch.randn(rows, 1, 40), torch.randn(2, rows, 40)):
        y = kernel(x)
        expected = layer(x)
        assert y.shape == expected.shape
        error = (y - expected).norm() / expected.norm()
        assert error < (0.02 if kind is Int8 else 1e-6)


@pytest.mark.parametrize("kind", [RowSum, OneDNN] if has_wide_vectors() else [RowSum])
def test_half_precision_adds_up_in_single(kind: type) -> None:
    """As well as the numbers can be rounded: 1/256 of each, far less than if sums were rounded."""
    layer, x = linear(inputs=2000).bfloat16(), torch.randn(1, 2000).bfloat16()
    y = (OneDNN(layer, 1) if kind is OneDNN else kind(layer))(x)
    exact = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    assert y.dtype == torch.bfloat16
    assert (y - exact).norm() / exact.norm() < 3e-3


def test_eight_bits_have_a_scale_for_each_output() -> None:
    layer = linear()
    layer.weight[0] *= 1000  # with one scale for all, the other rows would be gone
    x = torch.randn(4, 40)
    error = (Int8(layer)(x) - layer(x))[:, 1:].norm() / layer(x)[:, 1:].norm()
    assert error < 0.02


def test_what_raises_or_is_wrong_is_not_used_and_says_why() -> None:
    def raises(layer: nn.Linear) -> Plain:
        raise RuntimeError("no such operator\nand a stack of C++")

    class Wrong(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 1.01

    layer = linear()
    used = fastest(layer, [raises, Wrong], 2, TOLERANCE["fp32"])
    assert type(used) is Plain
    assert used.reason == "RuntimeError: no such operator; Wrong was off by 1.0e-02"
    assert "no such operator" in repr(used)
    x = torch.randn(2, 40)
    assert torch.equal(used(x), F.linear(x, layer.weight, layer.bias))
    second = fastest(layer, [raises, RowSum], 1, TOLERANCE["fp32"])
    assert isinstance(second, RowSum)
    assert second.reason == "RuntimeError: no such operator"


@pytest.mark.parametrize("weights", ["fp32", "bf16", "int8"])
def test_a_torch_without_the_private_operators_still_decodes(
    model: DecoderOnly, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise AttributeError("'_OpNamespace' object has no attribute 'gone'")

    monkeypatch.setattr(subject.torch, "embedding_bag", gone)
    monkeypatch.setattr(subject, "has_matrix_units", lambda: False)  # torch.addmv is not private
    monkeypatch.setattr(subject.OneDNN, "__init__", gone)
    monkeypatch.setattr(subject.torch, "quantize_per_channel", gone)
    fast = for_decoding(model, weights)
    assert isinstance(fast.head.logits, Plain)
    assert sample(fast, batch=1, length=5, sampling=Sampling()).shape == (1, 5)


@pytest.mark.parametrize(
    ("weights", "rows", "matrix_units", "wide", "kinds"),
    [
        ("fp32", 1, False, True, [RowSum, OneDNN]),
        ("fp32", 8, False, True, [OneDNN]),
        ("bf16", 1, False, True, [OneDNN]),
        ("fp32", 1, False, False, []),
        ("bf16", 1, True, False, []),
        ("fp32", 1, True, True, [Columns]),
        ("fp32", 2, True, True, []),
        ("fp32", 8, True, True, [OneDNN]),
        ("bf16", 1, True, True, [RowSum, OneDNN]),
        ("bf16", 2, True, True, [OneDNN]),
        ("int8", 1, True, True, [Int8]),
        ("int8", 8, False, False, [Int8]),
    ],
)
def test_kernels_are_chosen_by_what_the_processor_can_do(
    weights: str,
    rows: int,
    matrix_units: bool,
    wide: bool,
    kinds: list[type],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "has_matrix_units", lambda: matrix_units)
    monkeypatch.setattr(subject, "has_wide_vectors", lambda: wide)
    assert [type(make(linear())) for make in candidates(weights, rows, "cpu")] == kinds
    assert candidates(weights, rows, "cuda") == []


def test_matrices_that_stay_in_the_cache_keep_their_product(
    model: DecoderOnly, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 4 * sum(p.weight.numel() for p in model.modules() if isinstance(p, nn.Linear))
    for small, plain in ((size, False), (size + 1, True)):
        table = {has_matrix_units(): [(small, 32)]}
        monkeypatch.setattr(subject, "SMALL", table)
        monkeypatch.setattr(subject, "candidates", lambda *_: [RowSum])
        assert isinstance(for_decoding(model).head.logits, Plain) == plain
        assert isinstance(for_decoding(model, rows=31).head.logits, Plain) == plain
        assert isinstance(for_decoding(model, rows=32).head.logits, RowSum)
        assert isinstance(for_decoding(model, "bf16").head.logits, RowSum)


@pytest.mark.parametrize("tie", ["all", "none"])
def test_the_matrices_of_a_step_are_those_that_it_reads(tie: Tie) -> None:
    config = TransformerConfig(n_layers=2, d_model=12, n_heads=3, d_ff=16)
    model = EncoderDecoder.build(config, source_vocabulary=40, target_vocabulary=40, tie=tie)
    of_a_block = 4 * 12 * 12 + 2 * 12 * 12 + 2 * 12 * 16  # self, cross without its memory, feed
    assert bytes_of_a_step(model) == 4 * (2 * of_a_block + 40 * 12)


@pytest.mark.parametrize(("amx", "rows"), [(False, (31, 1)), (True, (64, 15))])
def test_what_a_cache_holds_depends_on_the_processor(
    amx: bool, rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "SMALL", SMALL)
    monkeypatch.setattr(subject, "has_matrix_units", lambda: amx)
    for n_bytes, most in zip((4 * 2**20, 19 * 2**20), rows, strict=True):
        assert is_small(n_bytes, most) == (amx or n_bytes < 5 * 2**20)
        assert not is_small(n_bytes, most + 1)
    assert not is_small(20 * 2**20, 1)


@pytest.mark.parametrize("chosen", [Columns, RowSum, OneDNN])
def test_what_is_to_be_compiled_gets_kernels_that_can_be(
    chosen: type, model: DecoderOnly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "candidates", lambda *_: [chosen])
    kind = Plain if chosen is OneDNN else RowSum
    assert type(for_decoding(model, compiled=True).head.logits) is kind
    assert type(for_decoding(model, "bf16", compiled=True).head.logits) is kind
    assert kind.compiles
    monkeypatch.setattr(subject, "SMALL", {False: [(10**9, 2)], True: [(10**9, 2)]})
    assert type(for_decoding(model, compiled=True).head.logits) is Plain


def test_no_warning_reaches_the_user(model: DecoderOnly) -> None:
    torch.set_warn_always(True)  # else one that another test has seen would not come again
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for weights in ("fp32", "bf16", "int8"):
                sample(for_decoding(model, weights), batch=1, length=3)
    finally:
        torch.set_warn_always(False)


def test_impossible_wishes_are_refused(model: DecoderOnly) -> None:
    with pytest.raises(ValueError, match="fp32, bf16 or int8, got fp16"):
        for_decoding(model, "fp16")
    with pytest.raises(ValueError, match="rows"):
        for_decoding(model, rows=0)
    with pytest.raises(ValueError, match="on a CPU only, this model is on meta"):
        for_decoding(model.to("meta"), "int8")
