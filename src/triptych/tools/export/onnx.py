"""Format `onnx`: the graph of a decoding step for ONNX runtimes.

The step has the value before a position, the position and the caches as inputs; the parameters of
the output distribution and the caches after it as outputs. The batch size is free.
`torch.onnx.export` needs functions of tensors: the state of decoding becomes a flat list of the
caches of the layers, in the order of `named_tensors`.
"""

import warnings
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from triptych.core.models.base import NO_CONDITION, Condition
from triptych.core.models.decoder_only import DecoderOnly, Kept
from triptych.core.state import DecodingState, tensors_of
from triptych.errors import UserError
from triptych.files.results import json_bytes
from triptych.tools.export.original import Original, Written, usage
from triptych.tools.export.tokenizer import tokenizer_files

STEP = "step.onnx"
OPSET = 20
"""Version of ONNX's operators."""
ABOUT = "onnx.json"
"""File with the length, the order of positions and the vocabulary."""
TOLERANCE = 1e-3
"""Largest difference of an output from ours with which an export is written."""
ROWS = 3
"""Rows of the batch with which the graph is compared; it is made with two."""


def write(original: Original, folder: Path) -> Written:
    """Write step.onnx and what is needed to use it.

    Raises UserError for a model of another kind.
    """
    decoder = original.model.decoder()
    if decoder is None:
        raise UserError(
            f"onnx has graphs for decoders without an encoder; this is "
            f"{type(original.model.full_model).__name__} of the domain {original.domain}: "
            "expected --format safetensors, or ctranslate2 for a translator"
        )
    files, length = tokenizer_files(original.model), decoder.length
    save_decoder(decoder.model, decoder.classes, folder, length)
    difference = largest_difference(decoder.model, decoder.classes, folder, length)
    if not difference <= TOLERANCE:
        raise RuntimeError(f"the graph gives other outputs: {difference:.2g}")
    about = {"name": original.name, "domain": original.domain, **decoder.about, "length": length}
    about["vocabulary"] = None if files else original.header["vocabulary"]
    for name, content in {**files, ABOUT: json_bytes(about)}.items():
        (folder / name).write_bytes(content)
    size = (folder / STEP).stat().st_size / 1e6
    label = "" if decoder.classes is None else 'feed["label"] = np.array([0])  # of onnx.json\n'
    return Written(
        weights=f"{size:.1f} MB in float32, ONNX opset {OPSET}",
        use=usage("onnx", length=str(length), label=label),
        checks=[
            f"Largest difference between onnxruntime {version('onnxruntime')} and "
            f"Triptych's step: {difference:.2g}, over the outputs at each of {length} "
            f"positions of {ROWS} random sequences, float32 on a CPU.",
        ],
    )


def named_tensors(state: DecodingState[Any]) -> dict[str, Tensor]:
    """Return the caches of a state by the names that a graph has for them.

    They are such as key_0 of the first layer, read for what the positions have read, and values for
    what a conditioner keeps of them, such as the pixels above or the notes that sound.
    """
    names = [f"{name}_{index}" for index, layer in enumerate(state.layers) for name in layer]
    names += [] if state.own.read is None else ["read"]
    values = getattr(state.own.condition, "values", None)
    names += [] if values is None else ["values"]
    return dict(zip(names, tensors_of([state.layers, state.own.read, values]), strict=True))


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
        self.keeps_values = "values" in named_tensors(state)
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
        read = next(given).clone() if model.term is not None else None  # [B, L(, C)]
        vectors = None if self.classes is None else self.classes(label).unsqueeze(1)  # [B, 1, D]
        kept = model.conditioner.start(Condition(vectors), value.shape[0], 1)
        if self.keeps_values:
            kept = replace(kept, values=next(given).clone())  # [B, L(, C)]
        state = DecodingState(layers, [None] * len(layers), Kept(kept, read))
        first = value if value.ndim == 2 else value[..., 0]  # [B, 1]
        x = model.embedding(value.clamp(min=0), (position - 1).clamp(min=0))  # [B, 1, D]
        x = torch.where((first < 0).unsqueeze(-1), model.start, x)  # [B, 1, D]
        vectors = model.conditioner.step_vectors(value.clamp(min=0), position, kept)  # [B, 1, D]
        context = model.decoder.step_context(position, state)
        if model.decoder.uses_token_ids:
            context = replace(context, token_ids=value)
        x = model.add_positions(x, model.positions(position), vectors)
        if read is not None:
            read.index_copy_(1, position, value)
        x = model.head_inputs(model.decoder.step(x, state, context), position, state)
        parameters = model.head(x)[:, 0]  # [B, Z]
        return [parameters, *named_tensors(state).values()]


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
    for part in (program.model.graph, *program.model.functions.values()):
        for node in part.all_nodes():  # also those of loops
            node.metadata_props.clear()  # they hold paths of this machine
    program.save(str(folder / STEP), external_data=False)


@torch.no_grad()
def largest_difference(
    core: DecoderOnly, classes: nn.Embedding | None, folder: Path, length: int
) -> float:
    """Return the largest difference between the outputs of the graph and of the model's own step.

    At each position of random sequences. classes: as in `DecoderStep`.
    """
    generator = torch.Generator().manual_seed(0)
    head: Any = core.head
    high = head.levels if core.value_shape else head.n_parameters
    values = torch.randint(high, (ROWS, length, *core.value_shape), generator=generator)
    feed: dict[str, Any] = {}
    condition = NO_CONDITION
    if classes is not None:
        label = torch.arange(ROWS) % classes.num_embeddings
        condition = Condition(classes(label).unsqueeze(1))
        feed["label"] = label.numpy()
    state = core.init_state(ROWS, length, condition=condition)
    # Copies, since the model's own steps write into the tensors.
    feed |= {name: tensor.numpy().copy() for name, tensor in named_tensors(state).items()}
    before = torch.cat([torch.full_like(values[:, :1], -1), values[:, :-1]], dim=1)  # [B, L, ...]
    step = open_graph(folder / STEP)
    outputs = [output.name for output in step.get_outputs()]
    worst = 0.0
    for position in range(length):
        value, at = before[:, position : position + 1], torch.tensor([position])
        if position == 0:
            expected = core.prefill(value[:, :0], state)  # [B, Z]
        else:
            expected = core.step(value, at, state)[:, 0]  # [B, Z]
        feed |= {"value": value.numpy(), "position": at.numpy()}
        logits, *caches = step.run(outputs, feed)
        feed |= dict(zip((name.removesuffix("_out") for name in outputs[1:]), caches, strict=True))
        worst = max(worst, float(np.abs(logits - expected.numpy()).max()))
    return worst


def open_graph(path: Path) -> Any:
    """Return a session of onnxruntime with one thread."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
