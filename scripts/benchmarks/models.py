"""Triptych's models under the sizes that the peers get."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.full import Full
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.feed_forward import GELU
from triptych.core.heads import CategoricalHead
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import AxialEmbedding, LearnedEmbedding, NoEmbedding
from triptych.core.transformer import TransformerConfig


def no_compiler(device: torch.device) -> str | None:
    """Why torch.compile cannot work here; None where what it needs is at hand."""
    if device.type == "cuda":
        return None if find_spec("triton") else "torch.compile needs triton on a GPU"
    if shutil.which("g++") or shutil.which("clang++"):
        return None
    return "torch.compile needs a C++ compiler on a CPU"


def mean_keys(attention: AttentionConfig, shape: tuple[int, ...]) -> float:
    """How many keys a query reads by the variant's definition, on average over all queries."""
    position = torch.arange(attention.order_of(shape).length)
    pattern = attention.build(1, 1, shape, True).pattern
    return float(pattern.visible(position[:, None], position[None, :]).sum(1).float().mean())


def sequence_model(
    vocabulary: int,
    shape: tuple[int, ...],
    *,
    d_model: int,
    n_layers: int,
    n_heads: int,
    attention: AttentionConfig | None = None,
    **settings: Any,
) -> DecoderOnly:
    """The decoder-only model, without dropout; positions as the domains give them."""
    attention = attention or Full()
    config = TransformerConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        feed_forward=GELU(4 * d_model),
        dropout=0.0,
        attention=attention,
        **settings,
    )
    order = attention.order_of(shape)
    positions: nn.Module
    if len(shape) > 1:
        positions = AxialEmbedding(order, d_model)
    elif isinstance(attention, Relative):
        positions = NoEmbedding(d_model)
    else:
        positions = LearnedEmbedding(order.length, d_model)
    return DecoderOnly(
        TokenEmbedding(vocabulary, d_model),
        positions,
        config.decoder(shape),
        CategoricalHead(d_model, vocabulary),
        d_model=d_model,
    )
