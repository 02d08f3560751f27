"""Random models of every domain as `Original`, without training."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from triptych.config.schema import from_plain
from triptych.domains import find_domain
from triptych.domains.language.model import Vocabulary
from triptych.domains.translation.model import SPECIALS, Tokenizers
from triptych.text.byte_level import BytePairs
from triptych.text.word_piece import WordPiece
from triptych.tools.export.original import Original, _default_texts
from triptych.training.run.checkpoint import header
from triptych.training.run.settings import run_metadata

LINES = ["a man plays the guitar", "two dogs run", "the man runs", "a dog and a guitar"]
SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 2, "dropout": 0.0}


def part(path: str, **settings: Any) -> dict[str, Any]:
    """A part of the settings by the end of its class path below `triptych.core`."""
    return {"class_path": f"triptych.core.{path}", "init_args": settings}


def feed_forward(kind: str) -> dict[str, Any]:
    return part(f"layers.{kind}", d_ff=24)


def randomised(model: nn.Module) -> nn.Module:
    """The model with random values in every parameter, zeros and ones of a new one included."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.add_(0.3 * noise)
    return model


def source_of(domain: str, settings: dict[str, Any], vocabulary: Any) -> Original:
    """A random model as `open_source` would return it. vocabulary: as in a checkpoint's header.

    Tests that change its weights copy it first.
    """
    return _source_of(domain, json.dumps(settings), json.dumps(vocabulary))


@functools.cache
def _source_of(domain: str, settings_text: str, vocabulary_text: str) -> Original:
    settings, vocabulary = json.loads(settings_text), json.loads(vocabulary_text)
    found = find_domain(domain)
    config = from_plain(found.config_class(), settings)
    read = found._find("inference", "restore")
    metadata = run_metadata(domain, config, vocabulary)
    made = header(metadata, seed=0, step=3, metrics={"nats_per_token": 1.5})
    owner = getattr(read, "__self__", None)
    decoded = vocabulary if owner is None else owner.read_vocabulary(vocabulary)
    model = randomised(config.build_model(decoded))
    state = nn.ModuleDict({"model": model}).state_dict()
    trained = found.restore({"triptych": made, "state_dict": state}, "cpu")
    return Original("tiny", trained, made, _default_texts(made), {"validation": {"fp32": {}}})


def translator(
    *,
    shared: bool = True,
    share_embeddings: str = "all",
    layers: int | None = None,
    model: Mapping[str, Any] = MappingProxyType({}),
    **parts: Any,
) -> Original:
    """A translator. layers: of the decoder. model: further settings. parts: of the Transformer."""
    kind = BytePairs()
    tokenizers = Tokenizers.train(LINES, LINES[::-1], kind=kind, vocabulary_size=270, shared=shared)
    settings = {
        "data": {"shared_vocabulary": shared},
        "model": {
            "transformer": {**SIZES, "feed_forward": feed_forward("ReLU"), **parts},
            "share_embeddings": share_embeddings,
            "n_decoder_layers": layers,
            **model,
        },
    }
    return source_of("translation", settings, tokenizers.to_plain())


def language_model(*, output_bias: bool = False, **parts: Any) -> Original:
    """A language model. parts: of the Transformer."""
    vocabulary = Vocabulary(WordPiece().build(LINES, 60, SPECIALS))
    settings = {
        "data": {"max_length": 20},
        "model": {
            "transformer": {**SIZES, "feed_forward": feed_forward("GELU"), **parts},
            "output_bias": output_bias,
        },
        "task": {"class_path": "triptych.domains.language.tasks.next_token.NextToken"},
    }
    return source_of("language", settings, vocabulary.to_plain())


def image_model(**model: Any) -> Original:
    """A model of images of 4 x 4 pixels in colour with 8 levels."""
    transformer = {**SIZES, "feed_forward": feed_forward("GELU"), **model.pop("transformer", {})}
    transformer.setdefault("positions", part("positions.Axial"))
    settings = {"model": {"transformer": transformer, **model}}
    vocabulary = {"shape": [4, 4, 3], "levels": 8, "class_names": ["even", "odd"]}
    return source_of("image", settings, vocabulary)


def gan_model() -> Original:
    """A GAN for images of 4 x 4 pixels in colour with 8 levels."""
    sizes = {"latent": 4, "channels": 8, "n_blocks": 1, "attention_side": 4}
    vocabulary = {"shape": [4, 4, 3], "levels": 8, "class_names": ["even", "odd"]}
    return source_of("gan", {"model": sizes}, vocabulary)


def vision_model() -> Original:
    """A classifier of images of 4 x 4 pixels in colour with 8 levels."""
    parts = {**SIZES, "feed_forward": feed_forward("GELU"), "positions": part("positions.Axial")}
    vocabulary = {"shape": [4, 4, 3], "levels": 8, "class_names": ["even", "odd"]}
    return source_of("vision", {"model": {"transformer": parts, "patch": 2}}, vocabulary)


def music_model(
    *,
    model: Mapping[str, Any] = MappingProxyType({}),
    source: str = "chorales.JSBChorales",
    **parts: Any,
) -> Original:
    """A model of chorales, or of what another source has. model: further settings. parts: of the
    Transformer.
    """
    from triptych.domains.music.config import Config

    settings = {
        "data": {
            "source": {
                "class_path": f"triptych.domains.music.sources.{source}",
                "init_args": {"directory": "nowhere"},
            },
            "sequence_length": 64,
            "overlap": 0,
        },
        "model": {"transformer": {**SIZES, "feed_forward": feed_forward("GELU"), **parts}, **model},
    }
    vocabulary = from_plain(Config, settings).model.tokenizer.vocabulary
    return source_of("music", settings, vocabulary)


RMS_NORM = part("layers.RMSNorm")
ROTARY = part("positions.Rotary")
LEARNED = part("positions.Learned")
SINUSOIDAL = part("positions.Sinusoidal")
NO_POSITIONS = part("positions.NoPositions")
LLAMA = {"norm": RMS_NORM, "positions": ROTARY, "feed_forward": feed_forward("SwiGLU")}
GPT2 = {"positions": LEARNED}
