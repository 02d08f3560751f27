"""Memory-compressed attention against its definition, written in loops."""

from __future__ import annotations

import math

import pytest
import torch
from decoders import config
from gpu.attention_cases import context, layer_of, step
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.backends import tiled
from triptych.core.attention.compressed import BlockConvolution, Compressed, CompressedAttention
from triptych.core.attention.local1d import Local1D
from triptych.core.attention.mask import BlockWindow
from triptych.core.positions import RotaryEmbedding

EXACT = {"rtol": 0.0, "atol": 1e-12}
D, H = 12, 3


def layer_with(stride: int) -> CompressedAttention:
    """A layer whose kernels are no means, in double precision."""
    layer = layer_of(Compressed(stride), D, H, (16,)).double()
    assert isinstance(layer, CompressedAttention)
    for parameter in (*layer.compress_keys.parameters(), *layer.compress_values.parameters()):
        torch.nn.init.normal_(parameter)
    return layer


def by_loops(layer: CompressedAttention, x: Tensor) -> Tensor:
    """One query of one head after another; blocks by their sums of products."""
    q, k, v = layer.heads(x, None)
    stride, length = layer.stride, x.shape[1]

    def block(convolution: BlockConvolution, x: Tensor, h: int, n: int) -> Tensor:
        kernel = convolution.weight[h].view(stride, layer.d_head, layer.d_head)
        terms = [x[n * stride + s] @ kernel[s] for s in range(stride)]
        return torch.stack(terms).sum(0) + convolution.bias[h, 0]

    rows = []
    for b in range(len(x)):
        for t in range(length):
            heads = []
            for h in range(layer.n_heads):
                complete = (t + 1) // stride
                keys = [block(layer.compress_keys, k[b, h], h, n) for n in range(complete)]
                values = [block(layer.compress_values, v[b, h], h, n) for n in range(complete)]
                for j in range(complete * stride, t + 1):
                    keys.append(k[b, h, j])
                    values.append(v[b, h, j])
                logits = torch.stack([q[b, h, t] @ key for key in keys])
                weights = (logits / math.sqrt(layer.d_head)).softmax(0)
                heads.append(weights @ torch.stack(values))
            rows.append(torch.cat(heads))
    return layer.out_proj(torch.stack(rows).view_as(x))


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_values_and_gradients_are_those_of_the_loops(
    stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layer_with(stride)
    x = torch.randn(2, 11, D, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(2, 11, D, dtype=torch.float64)
    inputs = [x, *layer.parameters()]
    expected = by_loops(layer, x)
    gradients = torch.autograd.grad(expected, inputs, dy)
    for path, tile in ((layer, 1), (layer, 4), (layer, 100), (layer.reference, 100)):
        monkeypatch.setattr(tiled, "queries_per_tile", lambda device, tile=tile: tile)
        found = path(x)
        torch.testing.assert_close(found, expected, **EXACT)
        for fast, slow in zip(torch.autograd.grad(found, inputs, dy), gradients, strict=True):
            torch.testing.assert_close(fast, slow, rtol=0.0, atol=1e-11)


def test_the_kernels_are_a_grouped_convolution() -> None:
    convolution = BlockConvolution(H, 4, 3).double()
    torch.nn.init.normal_(convolution.weight)
    torch.nn.init.normal_(convolution.bias)
    x = torch.randn(2, H, 15, 4, dtype=torch.float64)
    kernel = convolution.weight.view(H, 3, 4, 4).permute(0, 3, 2, 1).flatten(0, 1)  # [D, E, 3]
    expected = F.conv1d(
        x.transpose(2, 3).flatten(1, 2), kernel, convolution.bias.flatten(), stride=3, groups=H
    )
    torch.testing.assert_close(convolution(x).transpose(2, 3).flatten(1, 2), expected, **EXACT)


def test_the_cache_keeps_one_key_of_each_block_and_the_last_positions() -> None:
    layer = layer_with(3)
    cache = layer.init_cache(2, 1000)
    assert cache["key"].shape[2] == cache["value"].shape[2] == 3
    assert cache["key_blocks"].shape[2] == cache["value_blocks"].shape[2] == 334
    views = layer.cache_view(cache, 9)
    assert views["key_blocks"].shape[2] == 4
    assert views["key_blocks"].data_ptr() == cache["key_blocks"].data_ptr()


def test_steps_do_not_need_the_keys_that_were_compressed() -> None:
    """What fell out of the ring cannot be read: it is overwritten here with NaN."""
    layer, x = layer_with(3), torch.randn(2, 14, D, dtype=torch.float64)
    cache = layer.init_cache(2, 14)
    found = [layer(x[:, :8], cache=cache)]
    cache["key"][:, :, 8 % 3], cache["value"][:, :, 8 % 3] = torch.nan, torch.nan
    found += [step(layer, x[:, t : t + 1], torch.tensor([t]), cache) for t in range(8, 14)]
    torch.testing.assert_close(torch.cat(found, dim=1), by_loops(layer, x), **EXACT)


def test_weights_of_a_block_are_divided_among_its_real_positions() -> None:
    layer, x = layer_with(3), torch.randn(2, 8, D, dtype=torch.float64)
    padding = torch.zeros(2, 8, dtype=torch.bool)
    padding[1, 5:] = True
    weights = layer.weights(x, context(x, padding))  # [B, H, L, L]
    torch.testing.assert_close(weights[0, :, 7, 0], weights[0, :, 7, 2], **EXACT)
    assert (weights[1, :, :, 5:] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **EXACT)


def test_rotary_positions_are_refused() -> None:
    config = Compressed()
    with pytest.raises(ValueError, match="rotary"):
        config.build(D, H, config.mask_pattern((9,), True), rotary=RotaryEmbedding(4))


def test_a_stack_alternates_local_and_compressed_layers() -> None:
    both = {"attention": Local1D(block=4, memory=2), "second_attention": Compressed()}
    decoder = config(n_layers=5, **both).decoder((20,)).double()
    patterns = [block.attention.mask_pattern for block in decoder.blocks]
    assert [isinstance(pattern, BlockWindow) for pattern in patterns] == [True, False] * 2 + [True]
    assert len({id(pattern) for pattern in patterns}) == 2
    x = torch.randn(2, 20, D, dtype=torch.float64)
    expected = decoder(x)
    y = x
    for block in decoder.blocks:  # each layer with a context of its own
        y = block(y, block.attention.shared_context(y, context(y)))
    torch.testing.assert_close(decoder.final_norm(y), expected, **EXACT)

    for prefix in (0, 7):
        state = decoder.init_state(2, 20)
        assert [layer["key"].shape[2] for layer in state.layers] == [6, 3, 6, 3, 6]
        found = [decoder(x[:, :prefix], state=state)] if prefix else []
        together = decoder.step_context(torch.arange(prefix, 20).unsqueeze(1), state)
        for t in range(prefix, 20):
            now = together.at(t - prefix)
            found.append(decoder.step(x[:, t : t + 1], state, now))
        torch.testing.assert_close(torch.cat(found, dim=1), expected, **EXACT)
