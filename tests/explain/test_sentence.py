"""The stages of a sentence are those of the model that translates it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from lectures.sentence import Source, Walk, decoder, encoder
from torch import Tensor

from triptych.core.attention.relative import Relative
from triptych.core.layers import ReLU, RMSNorm, SwiGLU
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.positions import Rotary
from triptych.core.transformer import TransformerConfig
from triptych.core.universal import Universal

SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 2}
MODELS = {
    "pre": TransformerConfig(**SIZES, feed_forward=ReLU(7)),
    "post": TransformerConfig(**SIZES, norm_position="post"),
    "rotary": TransformerConfig(
        **SIZES, positions=Rotary(), norm=RMSNorm(), feed_forward=SwiGLU(7)
    ),
    "relative": TransformerConfig(**SIZES, attention=Relative(4)),
    "universal": TransformerConfig(**SIZES, depth=Universal()),
}
NAMES = ["a", "b", "c", "d", "e"]


class Recorded(Walk):
    """Keeps the tensors of the stages by title."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[str, list[Tensor]] = {}

    def tensor(
        self, title: str, text: str, x: Tensor, names: Sequence[str], columns: Sequence[str] = ()
    ) -> None:
        super().tensor(title, text, x, names, columns)
        self.tensors.setdefault(title.rpartition(", ")[2], []).append(x)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_parts_of_the_first_layer_give_what_the_layer_gives(name: str) -> None:
    torch.manual_seed(1)
    config = MODELS[name]
    model = EncoderDecoder(config, source_vocabulary=9, target_vocabulary=9).double().eval()
    for parameter in model.parameters():
        parameter.normal_()
    outputs: list[Tensor] = []
    model.encoder.blocks[0].register_forward_hook(lambda *of_pass: outputs.append(of_pass[2]))
    walk = Recorded()
    condition = encoder(walk, model, torch.tensor([[3, 1, 4, 1, 5]]), NAMES)

    shown = walk.tensors
    last = type(config.norm.build(1)).__name__ if config.norm_position == "post" else "add"
    torch.testing.assert_close(shown[last][-1], outputs[0])
    scores, weights = shown["scores"][0], shown["softmax"][0]
    assert scores.shape == weights.shape == (2, 5, 5)
    torch.testing.assert_close(scores.softmax(-1), weights)
    assert shown["Memory"][0] is condition.memory.features
    assert ("queries Q at their positions" in shown) == (name == "rotary")
    assert ("Position encodings" in shown) == (name in ("pre", "post", "relative"))
    if name == "rotary":  # positions 1 and 3 have the same token: one query, turned twice as far
        q, turned = shown["queries Q"][0], shown["queries Q at their positions"][0]
        torch.testing.assert_close(q[:, 1], q[:, 3])
        torch.testing.assert_close(turned[:, 0], q[:, 0])
        assert not torch.allclose(turned[:, 1], turned[:, 3])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_decoder_hides_later_positions_and_reads_the_memory(name: str) -> None:
    torch.manual_seed(2)
    config = MODELS[name]
    model = EncoderDecoder(config, source_vocabulary=9, target_vocabulary=9).double().eval()
    for parameter in model.parameters():
        parameter.normal_()
    source, target = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[1, 2, 6, 5]])
    condition = encoder(Recorded(), model, source, NAMES)
    outputs: list[Tensor] = []
    model.decoder.blocks[0].register_forward_hook(lambda *of_pass: outputs.append(of_pass[2]))
    walk = Recorded()
    logits = decoder(walk, model, condition, target, NAMES[:4], Source(source, NAMES))

    shown = walk.tensors
    torch.testing.assert_close(logits, model(source, None, target))
    last = type(config.norm.build(1)).__name__ if config.norm_position == "post" else "add"
    torch.testing.assert_close(shown[last][-1], outputs[0])
    masked, weights = shown["masked scores"][0], shown["softmax"][0]
    torch.testing.assert_close(masked.softmax(-1), weights)
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    assert (masked.isneginf() == later).all()
    assert torch.equal(masked[:, ~later], shown["scores"][0][:, ~later])
    cross = shown["cross-attention"][0]
    assert cross.shape == (2, 4, 5)
    torch.testing.assert_close(cross.sum(-1), torch.ones(2, 4, dtype=torch.float64))
