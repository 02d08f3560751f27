"""The graph of ONNX: a module of a decoding step with its state as inputs and outputs.

`torch.onnx.export` needs functions of tensors. The state of decoding becomes a flat list of the
caches of the layers, in the order of `named_tensors`.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.state import DecodingState, tensors_of

STEP = "step.onnx"
OPSET = 20
"""Version of ONNX's operators."""


def named_tensors(state: DecodingState[Any]) -> dict[str, Tensor]:
    """Return the caches of a state by the names that a graph has for them.

    They are such as key_0 of the first layer.
    """
    names = [f"{name}_{index}" for index, layer in enumerate(state.layers) for name in layer]
    return dict(zip(names, tensors_of(state.layers), strict=True))


class DecoderStep(nn.Module):
    """Step of a decoder-only model, from the first position on.

    state: of the model, which gives the names of the caches. classes: embeddings of the classes of
    a class-conditional model.
    """

    def __init__(
        self, model: DecoderOnly, state: DecodingState[Any], classes: nn.Embedding | None
    ) -> None:
        super().__init__()
        self.model = model
        self.layers = [list(layer) for layer in state.layers]
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
        given = iter(tensors)
        layers = [{name: next(given).clone() for name in layer} for layer in self.layers]
        state: DecodingState[Any] = DecodingState(layers, [None] * len(layers), None)
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


def save_decoder(
    core: DecoderOnly, classes: nn.Embedding | None, folder: Path, length: int
) -> None:
    """Write step.onnx of a decoder-only model. classes: as in `DecoderStep`."""
    state = core.init_state(2, length)
    batch = torch.export.Dim("batch", min=1)  # the one size that is left free
    tensors = named_tensors(state)
    value = torch.full((2, 1, *core.value_shape), -1)
    arguments: list[Any] = [value, torch.tensor([0]), list(tensors.values())]
    shapes: list[Any] = [{0: batch}, None, [{0: batch} for _ in tensors]]
    inputs = ["value", "position", *tensors]
    if classes is not None:
        label = torch.zeros(2, dtype=torch.int64)
        arguments, shapes, inputs = [*arguments, label], [*shapes, {0: batch}], [*inputs, "label"]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            DecoderStep(core, state, classes).eval(),
            tuple(arguments),
            dynamo=True,
            dynamic_shapes=tuple(shapes),
            input_names=inputs,
            output_names=["logits", *(f"{name}_out" for name in tensors)],
            opset_version=OPSET,
            verbose=False,
        )
    for node in program.model.graph:
        node.metadata_props.clear()  # they hold paths of this machine
    program.save(str(folder / STEP), external_data=False)
