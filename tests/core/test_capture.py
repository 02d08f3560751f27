"""The weights that are drawn are those of the definition, and looking at them changes nothing."""

from __future__ import annotations

import pytest
import torch
from decoders import config, decoder_only
from gpu.attention_cases import EXAMPLES, Example, build, context, inputs, length_of, name

from triptych.core.attention.compressed import CompressedAttention
from triptych.core.attention.cross import CrossAttention, capture_attention
from triptych.core.attention.relative import Relative
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.models.joint_decoder import JointDecoder
from triptych.core.state import ForwardContext, Memory

EXACT = {"rtol": 0.0, "atol": 1e-12}


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
@pytest.mark.parametrize("padded", [False, True])
def test_the_weights_times_the_values_are_the_reference(example: Example, padded: bool) -> None:
    layer, x = build(example), inputs(example)
    length = length_of(example)
    padding = torch.zeros(2, length, dtype=torch.bool)
    padding[1, length - 3 :] = True
    now = context(x, padding if padded else None)
    weights = layer.weights(x, now)
    if not isinstance(layer, CompressedAttention):  # which reads values of blocks
        values = layer.heads(x, layer.shared_context(x, now).rotation)[2]  # [B, H, L, E]
        merged = layer.out_proj((weights @ values).transpose(1, 2).flatten(2))
        torch.testing.assert_close(merged, layer.reference(x, now), **EXACT)

    place = torch.arange(length)
    visible = layer.mask_pattern.visible(place.unsqueeze(1), place).expand(2, length, length)
    if padded:
        visible = visible & ~padding.unsqueeze(1)
    hidden = ~visible.unsqueeze(1).expand_as(weights)
    assert (weights[hidden] == 0).all()
    assert (weights[~hidden] > 0).all()
    sums = visible.any(-1).double().unsqueeze(1).expand(weights.shape[:3])
    torch.testing.assert_close(weights.sum(-1), sums, **EXACT)


def test_cross_weights_times_the_values_are_what_is_read() -> None:
    layer = CrossAttention(12, 3).double()
    x, memory = torch.randn(3, 4, 12).double(), torch.randn(3, 5, 12).double()
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    padding[2] = True
    for now in (None, ~padding):
        state = layer.project_memory(Memory(memory, now))
        weights = layer.weights(x, state)
        assert weights.shape == (3, 3, 4, 5)
        y = (weights @ state.values).transpose(1, 2).flatten(2)
        torch.testing.assert_close(layer.out_proj(y), layer(x, state), **EXACT)
        if now is not None:
            hidden = padding[:, None, None, :].expand_as(weights)
            assert (weights[hidden] == 0).all()
            expected = torch.tensor([1.0, 1.0, 0.0]).double()[:, None, None].expand(3, 3, 4)
            torch.testing.assert_close(weights.sum(-1), expected, **EXACT)


def test_every_layer_of_a_translation_model_is_recorded_and_nothing_changes() -> None:
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9, "n_decoder_layers": 3}
    model = EncoderDecoder(config(), **sizes).double().eval()
    source, target = torch.randint(3, 9, (2, 7)), torch.randint(3, 9, (2, 4))
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    plain = model(source, padding, target)
    with capture_attention(model.encoder) as reading, capture_attention(model.decoder) as writing:
        seen = model(source, padding, target)
    torch.testing.assert_close(seen, plain, rtol=0, atol=0)
    assert [tuple(w.shape) for w in reading.self_attention] == [(2, 3, 7, 7)] * 2
    assert [tuple(w.shape) for w in writing.self_attention] == [(2, 3, 4, 4)] * 3
    assert [tuple(w.shape) for w in writing.cross] == [(2, 3, 4, 7)] * 3
    assert reading.cross == []
    for weights in (*reading.self_attention, *writing.cross):
        assert (weights[1, ..., 5:] == 0).all()
    # The first layer by hand: the order of the layers is the order of the model.
    block = model.encoder.blocks[0]
    first = block.attention_residual.norm(model._embed(model.source_embedding, source))
    torch.testing.assert_close(
        reading.self_attention[0], block.attention.weights(first, ForwardContext(~padding)), **EXACT
    )

    model(source, padding, target)
    assert len(writing.cross) == 3, "nobody listens any more"


@pytest.mark.parametrize(("layer", "which"), [(None, -1), (1, 0), (2, 1)])
def test_a_translation_model_gives_the_weights_of_one_layer(layer: int | None, which: int) -> None:
    source, target = torch.randint(3, 9, (2, 7)), torch.randint(3, 9, (2, 4))
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9, "n_decoder_layers": 3}
    model = EncoderDecoder(config(), **sizes).eval()
    with capture_attention(model.encoder) as reading, capture_attention(model.decoder) as writing:
        model(source, None, target)
    expected = writing.cross, reading.self_attention, writing.self_attention
    for weights, layers in zip(model.attention(source, target, layer), expected, strict=True):
        assert torch.equal(weights, layers[which])

    joint = JointDecoder(config(), vocabulary=9, padding=0).eval()
    with capture_attention(joint.decoder) as seen:
        joint(source, None, target)
    own = seen.self_attention[which]  # [B, H, K + L, K + L]
    cross, of_source, of_target = joint.attention(source, target, layer)
    assert torch.equal(torch.cat([cross, of_target], dim=-1), own[:, :, 7:])
    assert torch.equal(of_source, own[:, :, :7, :7])


def test_a_model_that_fails_is_left_as_it_was() -> None:
    model = decoder_only(7, attention=Relative(4)).eval()
    with pytest.raises(RuntimeError, match="stop"), capture_attention(model):  # noqa: PT012
        model(torch.zeros(1, 5, dtype=torch.int64))
        raise RuntimeError("stop")
    for layer in model.modules():
        assert not layer._forward_pre_hooks
