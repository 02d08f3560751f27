"""Graphs of ONNX: modules of a decoding step with its state as inputs and outputs, and their files.

`torch.onnx.export` needs functions of tensors. The state of decoding becomes a flat list of tensors
in the order of `named_tensors`: the caches of the layers, then the projected memory.
"""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.state import DecodingState, ProjectedMemory, tensors_of
from triptych.text.tokenizer import TextFormat

STEP, ENCODER = "step.onnx", "encoder.onnx"
OPSET = 20
"""Version of ONNX's operators."""
SIZES = {"batch": 1, "source": 2, "capacity": 2}
"""Names of the sizes that a graph leaves free -> least value."""


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


def save_decoder(
    core: DecoderOnly, classes: nn.Embedding | None, folder: Path, length: int
) -> None:
    """Write step.onnx of a decoder-only model. classes: as in `DecoderStep`."""
    label = None if classes is None else torch.zeros(2, dtype=torch.int64)
    state = core.init_state(2, length)
    batch = torch.export.Dim("batch", min=1)
    value = torch.full((2, 1, *core.value_shape), -1)
    tensors = named_tensors(state)
    names = list(tensors)
    arguments: list[Any] = [value, torch.tensor([0]), list(tensors.values())]
    shapes: list[Any] = [{0: batch}, None, [{0: batch} for _ in names]]
    inputs = ["value", "position", *names]
    if label is not None:
        arguments, shapes, inputs = [*arguments, label], [*shapes, {0: batch}], [*inputs, "label"]
    _save(
        DecoderStep(core, state, classes),
        arguments,
        folder / STEP,
        inputs=inputs,
        outputs=["logits", *(f"{name}_out" for name in names)],
        shapes=shapes,
    )


def save_translator(model: EncoderDecoder, folder: Path, length: int) -> None:
    """Write encoder.onnx and step.onnx of a translator."""
    dims = [torch.export.Dim(name, min=least) for name, least in SIZES.items()]
    batch, n_source, capacity = dims
    source, padding = random_sources(model, 2)
    with torch.no_grad():
        state = model.init_state(2, length, condition=model.encode(source, padding))
    tensors, memory = named_tensors(state), memory_names(state)
    of_source = {0: batch, 1: n_source}
    _save(
        Encoder(model),
        [source, padding],
        folder / ENCODER,
        inputs=["source", "padding"],
        outputs=memory,
        shapes=[of_source, of_source],
    )
    slots = [{0: batch, 2: n_source if name in memory else capacity} for name in tensors]
    _save(
        TranslatorStep(model, state),
        [torch.full((2, 1), TextFormat.START), torch.tensor([0]), padding, list(tensors.values())],
        folder / STEP,
        inputs=["value", "position", "padding", *tensors],
        outputs=["logits", *(f"{name}_out" for name in layer_names(state))],
        shapes=[{0: batch}, None, of_source, slots],
    )


def _save(
    module: nn.Module,
    arguments: Sequence[Any],
    path: Path,
    *,
    inputs: list[str],
    outputs: list[str],
    shapes: Sequence[Any],
) -> None:
    """Write the graph of a module. shapes: free sizes of each argument."""
    from onnx_ir.passes import PassError
    from onnxscript.onnx_opset import opset20

    op: Any = opset20

    def remainder(dividend: Any, divisor: Any) -> Any:
        """Tensor % size, where torch's exporter expects a constant."""
        if isinstance(divisor, int):
            divisor = op.Constant(value_int=divisor)
        return op.Mod(dividend, op.Cast(divisor, to=7))  # int64

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            module.eval(),
            tuple(arguments),
            dynamo=True,
            dynamic_shapes=tuple(shapes),
            input_names=inputs,
            output_names=outputs,
            opset_version=OPSET,
            custom_translation_table={torch.ops.aten.remainder.Scalar: remainder},
            optimize=False,
            verbose=False,
        )
        # Of an encoder with relative attention onnxscript cannot fold a constant; runtimes optimise
        # a graph themselves, and every graph is compared.
        with suppress(PassError):
            program.optimize()
    for node in program.model.graph:
        node.metadata_props.clear()  # they hold paths of this machine
    program.save(str(path), external_data=False)


def random_sources(model: EncoderDecoder, rows: int) -> tuple[Tensor, Tensor]:
    """Return random sources int64 [rows, 9] and their padding; the last row is shorter."""
    generator = torch.Generator().manual_seed(0)
    size = model.source_embedding.table.num_embeddings
    source = torch.randint(3, size, (rows, 9), generator=generator)
    padding = torch.zeros(rows, 9, dtype=torch.bool)
    padding[-1, 6:] = True
    return source, padding
