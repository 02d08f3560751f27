"""Laws of CUDA on fake tensors: one device, no wait for the host, few launches of kernels."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch
from gpu.attention_cases import (
    CAUSAL,
    EXAMPLES,
    Example,
    context,
    layer_of,
    length_of,
    name,
    token_ids,
)
from gpu.fake_cuda import fake_cuda
from torch._subclasses.fake_tensor import DataDependentOutputException

from triptych.core.attention.compressed import CompressedAttention
from triptych.core.attention.multihead import MultiHeadAttention
from triptych.core.attention.relative import Relative

WIDTH, HEADS = 64, 2
"""Heads of 32 features; FlexAttention needs 16."""
DECODING = [example for example in CAUSAL if "Rotary(inner=PitchTime" not in name(example)]
"""Causal examples, without a combination that `AttentionConfig.build` refuses."""
LAUNCHES_OF_A_PASS, LAUNCHES_OF_A_STEP = 20, 15
"""Most launches of a layer's attention in a training pass and in a decoding step; twice as many
where two convolutions make blocks of keys and values."""


def convolutions(layer: MultiHeadAttention) -> int:
    return 2 if isinstance(layer, CompressedAttention) else 1


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_pairs_are_counted_on_the_device_of_the_tables(example: Example) -> None:
    """A run on a GPU counts its operations so, and reads one number for it."""
    layer = layer_of(example.config, WIDTH, HEADS, example.shape, example.causal)
    with fake_cuda(layer), contextlib.suppress(DataDependentOutputException):
        layer.mask_pattern.visible_pairs(length_of(example))


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
@torch.no_grad()
def test_a_training_pass_of_attention(example: Example) -> None:
    layer = layer_of(example.config, WIDTH, HEADS, example.shape, example.causal)
    with fake_cuda(layer) as launches:
        x = torch.zeros(2, length_of(example), WIDTH, device="cuda")
        now = layer.shared_context(x, context(x))
        layer(x, now)  # makes what is cached, such as the block mask
        launches.by_name.clear()
        assert layer(x, now).device.type == "cuda"
        assert launches.count <= LAUNCHES_OF_A_PASS * convolutions(layer), launches.by_name


@pytest.mark.parametrize("example", DECODING, ids=name)
@torch.no_grad()
def test_prefill_and_step_of_attention(example: Example) -> None:
    layer = layer_of(example.config, WIDTH, HEADS, example.shape, example.causal)
    with fake_cuda(layer) as launches:
        x = torch.zeros(2, length_of(example), WIDTH, device="cuda")
        cache = layer.init_cache(2, length_of(example))
        layer(x[:, :3], context(x[:, :3]), cache)
        now = layer.step_context(torch.full((1,), 3, device="cuda"), cache)
        last = x[:, 3:4].contiguous()
        now = replace(now, token_ids=token_ids(last))
        now = replace(now, token_classes=layer.token_classes(now))
        launches.by_name.clear()
        assert layer.step(last, cache, now).device.type == "cuda"
        assert launches.count <= LAUNCHES_OF_A_STEP * convolutions(layer), launches.by_name


def test_a_wait_and_a_second_device_are_found() -> None:
    layer = layer_of(Relative(4), WIDTH, HEADS, (8,))
    with fake_cuda(layer), pytest.raises(DataDependentOutputException):
        torch.zeros(1, device="cuda").item()
    for fault in (
        lambda x: x + torch.zeros(8, 8),
        lambda x: x.masked_fill(torch.zeros(8, 8, dtype=torch.bool), 0.0),
        lambda x: x.cpu(),
    ):
        with fake_cuda(layer), pytest.raises(Exception, match=r"(?i)device|aten._?to"):
            fault(torch.zeros(8, 8, device="cuda"))
