"""Modules that ONNX graphs are made of: a decoding step with its cache as inputs and outputs.

`torch.onnx.export` needs functions of tensors. The caches of the layers, dicts of tensors, become a
flat list in the order of `cache_names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from triptych.core.attention.context import MEMORY, KVCache
from triptych.core.models.decoder_only import VECTOR, DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder

STEP, ENCODER = "step.onnx", "encoder.onnx"
REAL = f"{MEMORY}real"
"""Name of the mask of the memory, which graphs have as the input `padding`."""


def cache_names(cache: KVCache) -> list[str]:
    """Names of the tensors of a cache as a graph has them, such as key_0 of the first layer.

    Those of the memory begin with memory_; they are inputs of a step and no outputs.
    """
    return [
        f"{name}_{index}"
        for index, layer in enumerate(cache)
        for name in layer
        if name not in (REAL, VECTOR)
    ]


def flatten(cache: KVCache) -> list[Tensor]:
    """The tensors of a cache in the order of `cache_names`."""
    return [
        tensor for layer in cache for name, tensor in layer.items() if name not in (REAL, VECTOR)
    ]


class Encoder(nn.Module):
    """The encoder of a translator, with the projections of its output for every layer."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, padding: Tensor) -> list[Tensor]:
        """source int64 [B, K], padding bool [B, K] -> keys and values [B, H, K, E] per layer."""
        condition = self.model.encode(source, padding)
        cache = self.model.init_cache(source.shape[0], 1, condition=condition)
        names = cache_names(cache)
        parts = zip(names, flatten(cache), strict=True)
        return [tensor for name, tensor in parts if name.startswith(MEMORY)]


class Step(nn.Module):
    """A decoding step of a model; subclasses make the decoder's inputs.

    names: of the cache tensors, by layer.
    """

    def __init__(self, names: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.names = [list(layer) for layer in names]

    def unflatten(self, tensors: Sequence[Tensor], real: Tensor | None = None) -> KVCache:
        """The cache of a list of tensors; copies of those that a step writes into."""
        given = iter(tensors)
        cache: KVCache = []
        for layer in self.names:
            found = {name: next(given) for name in layer if name not in (REAL, VECTOR)}
            cache.append(
                {
                    name: tensor if name.startswith(MEMORY) else tensor.clone()
                    for name, tensor in found.items()
                }
            )
            if real is not None:
                cache[-1][REAL] = real
        return cache


class TranslatorStep(Step):
    """Step of a translator."""

    def __init__(self, model: EncoderDecoder, names: Sequence[Sequence[str]]) -> None:
        super().__init__(names)
        self.model = model

    def forward(
        self, value: Tensor, position: Tensor, padding: Tensor, tensors: list[Tensor]
    ) -> list[Tensor]:
        """value int64 [B, 1]: the token before the position int64 [1] -> logits [B, V], caches."""
        cache = self.unflatten(tensors, ~padding)
        logits = self.model.step(value, position, cache)[:, 0]  # [B, V]
        return [logits, *written(cache)]


class DecoderStep(Step):
    """Step of a decoder-only model, from the first position on.

    classes: embeddings of the classes of a class-conditional model.
    """

    def __init__(
        self, model: DecoderOnly, names: Sequence[Sequence[str]], classes: nn.Embedding | None
    ) -> None:
        super().__init__(names)
        self.model = model
        self.classes = classes

    def forward(
        self,
        value: Tensor,
        position: Tensor,
        tensors: list[Tensor],
        label: Tensor | None = None,
    ) -> list[Tensor]:
        """Parameters of the head [B, Z] at a position, and the caches.

        value int64 [B, 1], or [B, 1, C] for pixels: the value before the position int64 [1], below
        0 for none, as at position 0. label int64 [B].
        """
        model = self.model
        cache = self.unflatten(tensors)
        first = value if value.ndim == 2 else value[..., 0]  # [B, 1]
        x = model.embedding(value.clamp(min=0), (position - 1).clamp(min=0))  # [B, 1, D]
        x = torch.where((first < 0).unsqueeze(-1), model.start, x)  # [B, 1, D]
        vector = None if self.classes is None else self.classes(label)  # [B, D]
        context = model.decoder.step_context(position, cache)
        if model.decoder.uses_token_ids:
            context = replace(context, token_ids=value)
        x = model.add_positions(x, model.positions(position), vector)
        parameters = model.head(model.decoder.step(x, cache, context))[:, 0]  # [B, Z]
        return [parameters, *written(cache)]


def written(cache: KVCache) -> list[Tensor]:
    """The tensors of a cache that a step writes, in the order of `cache_names`."""
    return [
        tensor for layer in cache for name, tensor in layer.items() if not name.startswith(MEMORY)
    ]
