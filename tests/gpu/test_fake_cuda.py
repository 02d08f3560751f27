"""Laws of CUDA on fake tensors: one device, no wait for the host, few launches of kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_cases import CAUSAL, EXAMPLES, context, layer_of, length_of, name, token_ids
from fake_cuda import fake_cuda
from torch._subclasses.fake_tensor import DataDependentOutputException

from triptych.core.attention.base import Example
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.generation_order import raster
from triptych.core.heads import Categorical, CategoricalHead, HeadConfig, MixtureOfLogistics
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.transformer import TransformerConfig
from triptych.decoding.generate import generate
from triptych.decoding.sampling import Sampling
from triptych.domains.image.model import ImageTransformer, ModelConfig

WIDTH, HEADS = 64, 2
"""Heads of 32 features; FlexAttention needs 16."""
DECODING = [example for example in CAUSAL if "Rotary(inner=PitchTime" not in name(example)]
"""Causal examples, without a combination that `AttentionConfig.build` refuses."""
LAUNCHES_OF_A_PASS, LAUNCHES_OF_A_STEP = 20, 15
"""Most launches of a layer's attention in a training pass and in a decoding step."""


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
        assert launches.count <= LAUNCHES_OF_A_PASS, launches.by_name


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
        assert launches.count <= LAUNCHES_OF_A_STEP, launches.by_name


def image_model(head: HeadConfig) -> ImageTransformer:
    parts = TransformerConfig(2, WIDTH, HEADS, attention=Local2D(4, 4, 2, 2))
    return ImageTransformer(ModelConfig(parts, head), (8, 8, 3), levels=256, n_classes=2)


def music_model(config: TransformerConfig) -> DecoderOnly:
    return DecoderOnly(
        TokenEmbedding(50, WIDTH),
        config.positions.build(WIDTH, raster((64,))),
        config.decoder((64,)),
        CategoricalHead(WIDTH, 50),
        d_model=WIDTH,
    )


DECODERS = {
    "sub-pixels": lambda: image_model(Categorical()).core,
    "pixels": lambda: image_model(MixtureOfLogistics()).core,
    "relative": lambda: music_model(TransformerConfig(2, WIDTH, HEADS, attention=Relative(8))),
    "pitch and time": lambda: music_model(
        TransformerConfig(2, WIDTH, HEADS, attention=PitchTime(n_pitches=50))
    ),
}


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_a_decoder_scores_and_samples_without_a_wait(name: str) -> None:
    model = DECODERS[name]()
    top_k = 5 if isinstance(model.head, CategoricalHead) else None
    with fake_cuda(model):
        values = torch.zeros(2, 64, *model.value_shape, dtype=torch.int64, device="cuda")
        assert model.nll(values).device.type == "cuda"
        made = generate(model, batch=2, length=20, sampling=Sampling(top_k=top_k))
        assert made.device.type == "cuda"


@torch.no_grad()
def test_images_are_scored_without_a_copy_from_the_host() -> None:
    model = image_model(Categorical())
    with fake_cuda(model):
        images = torch.zeros(2, 8, 8, 3, dtype=torch.uint8, device="cuda")
        assert model.nll(images, images[:, 0, 0, 0].long()).device.type == "cuda"


def test_an_encoder_decoder_scores_without_a_wait() -> None:
    model = EncoderDecoder(
        TransformerConfig(2, WIDTH, HEADS), source_vocabulary=50, target_vocabulary=50
    )
    with fake_cuda(model), torch.no_grad():
        source = torch.zeros(2, 9, dtype=torch.int64, device="cuda")
        assert model(source, source == 1, source[:, :5]).device.type == "cuda"


def test_a_wait_and_a_second_device_are_found() -> None:
    layer = layer_of(Relative(4), WIDTH, HEADS, (8,))
    with fake_cuda(layer), pytest.raises(DataDependentOutputException):
        torch.zeros(1, device="cuda").item()
    with fake_cuda(layer), pytest.raises(Exception, match="device"):
        torch.zeros(8, 8) + torch.zeros(8, 8, device="cuda")
