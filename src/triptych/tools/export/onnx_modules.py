"""Modules that ONNX graphs are made of: a decoding step with its state as inputs and outputs.

`torch.onnx.export` needs functions of tensors. The state of decoding becomes a flat list of tensors
in the order of `named_tensors`: the caches of the layers, then the projected memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.state import DecodingState, ProjectedMemory, tensors_of

STEP, ENCODER = "step.onnx", "encoder.onnx"


def layer_names(state: DecodingState[Any]) -> list[str]:
    """Names of the caches of a state as a graph has them, such as key_0 of the first layer."""
    return [f"{name}_{index}" for index, layer in enumerate(state.layers) for name in layer]


def memory_names(state: DecodingState[Any]) -> list[str]:
    """Names of the projected memory, such as memory_key_0: inputs of a step and no outputs."""
    return [
        f"memory_{name}_{index}"
        for index, memory in enumerate(state.memory)
        if memory is not None
        for name in ("key", "value")
    ]


def named_tensors(state: DecodingState[Any]) -> dict[str, Tensor]:
    """Caches and projected memory by the names that a graph has for them.

    A graph has the mask of the memory as the input `padding`.
    """
    memory = [part for of in state.memory if of is not None for part in (of.keys, of.values)]
    names = [*layer_names(state), *memory_names(state)]
    return dict(zip(names, [*tensors_of(state.layers), *memory], strict=True))


class Encoder(nn.Module):
    """The encoder of a translator, with the projections of its output for every layer."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, padding: Tensor) -> list[Tensor]:
        """source int64 [B, K], padding bool [B, K] -> keys and values [B, H, K, E] per layer."""
        condition = self.model.encode(source, padding)
        state = self.model.init_state(source.shape[0], 1, condition=condition)
        tensors = named_tensors(state)
        return [tensors[name] for name in memory_names(state)]


class Step(nn.Module):
    """A decoding step of a model; subclasses make the decoder's inputs.

    state: of the model, which gives the names of the caches.
    """

    def __init__(self, state: DecodingState[Any]) -> None:
        super().__init__()
        self.layers = [list(layer) for layer in state.layers]
        self.has_memory = [memory is not None for memory in state.memory]

    def unflatten(
        self, tensors: Sequence[Tensor], real: Tensor | None = None
    ) -> DecodingState[None]:
        """The state of tensors in the order of `named_tensors`; copies of the caches."""
        given = iter(tensors)
        layers = [{name: next(given).clone() for name in layer} for layer in self.layers]
        memory = [
            ProjectedMemory(next(given), next(given), real) if has else None
            for has in self.has_memory
        ]
        return DecodingState(layers, memory, None)


class TranslatorStep(Step):
    """Step of a translator."""

    def __init__(self, model: EncoderDecoder, state: DecodingState[None]) -> None:
        super().__init__(state)
        self.model = model

    def forward(
        self, value: Tensor, position: Tensor, padding: Tensor, tensors: list[Tensor]
    ) -> list[Tensor]:
        """value int64 [B, 1]: the token before the position int64 [1] -> logits [B, V], caches."""
        state = self.unflatten(tensors, ~padding)
        logits = self.model.step(value, position, state)[:, 0]  # [B, V]
        return [logits, *tensors_of(state.layers)]


class DecoderStep(Step):
    """Step of a decoder-only model, from the first position on.

    classes: embeddings of the classes of a class-conditional model.
    """

    def __init__(
        self, model: DecoderOnly, state: DecodingState[Any], classes: nn.Embedding | None
    ) -> None:
        super().__init__(state)
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
        state = self.unflatten(tensors)
        first = value if value.ndim == 2 else value[..., 0]  # [B, 1]
        x = model.embedding(value.clamp(min=0), (position - 1).clamp(min=0))  # [B, 1, D]
        x = torch.where((first < 0).unsqueeze(-1), model.start, x)  # [B, 1, D]
        vectors = None if self.classes is None else self.classes(label).unsqueeze(1)  # [B, 1, D]
        context = model.decoder.step_context(position, state)
        if model.decoder.uses_token_ids:
            context = replace(context, token_ids=value)
        x = model.add_positions(x, model.positions(position), vectors)
        parameters = model.head(model.decoder.step(x, state, context))[:, 0]  # [B, Z]
        return [parameters, *tensors_of(state.layers)]
