"""Format `onnx`: graphs of a decoding step, and of a translator's encoder, for ONNX runtimes.

The step has the value before a position, the position and the caches as inputs; the parameters of
the output distribution and the caches after it as outputs. The batch size is free, and in a
translator the length of the source and the capacity of the caches too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.errors import UserError
from triptych.files.results import json_bytes
from triptych.text.tokenizer import TextFormat
from triptych.tools.export.onnx_check import (
    ROWS,
    compare_decoder,
    compare_translator,
    random_sources,
)
from triptych.tools.export.onnx_modules import (
    ENCODER,
    STEP,
    DecoderStep,
    Encoder,
    TranslatorStep,
    layer_names,
    memory_names,
    named_tensors,
)
from triptych.tools.export.onnx_use import DECODER, TRANSLATOR
from triptych.tools.export.source import Source, Written
from triptych.tools.export.tokenizer import tokenizer_files

ABOUT = "onnx.json"
"""File with the length, the order of positions and the vocabulary."""
OPSET = 20
"""Version of ONNX's operators."""
SIZES = {"batch": 1, "source": 2, "capacity": 2}
"""Names of the sizes that a graph leaves free -> least value."""
TRANSLATION_LENGTH = 64
"""Positions at which a translator is compared."""
TOLERANCE = 1e-3
"""Largest difference of an output from ours with which an export is written."""


def write(source: Source, folder: Path) -> Written:
    """Write step.onnx, for a translator encoder.onnx, and what is needed to use them.

    Raises UserError for a model of another kind.
    """
    model = source.model.full_model
    about: dict[str, Any] = {"name": source.name, "domain": source.domain}
    files = tokenizer_files(source.model)
    decoder = source.model.decoder()
    classes = None if decoder is None else decoder.classes
    if isinstance(model, EncoderDecoder):
        length = TRANSLATION_LENGTH
        _write_translator(model, folder, length)
        result = compare_translator(model, folder, length)
        use = TRANSLATOR
    elif decoder is not None:
        length = decoder.length
        about |= decoder.about
        _write_decoder(decoder.model, classes, folder, length)
        result = compare_decoder(decoder.model, classes, folder, length)
        use = DECODER
    else:
        raise UserError(
            f"onnx has graphs for translators with an encoder and a decoder and for decoders "
            f"without an encoder; this is a {type(model).__name__} of the domain "
            f"{source.domain}: expected --format safetensors"
        )
    if not result.difference <= TOLERANCE:
        raise RuntimeError(f"the graph gives other outputs: {result.difference:.2g}")
    about |= {"length": length, "vocabulary": None if files else source.header["vocabulary"]}
    for name, content in {**files, ABOUT: json_bytes(about)}.items():
        (folder / name).write_bytes(content)
    size = sum(path.stat().st_size for path in folder.glob("*.onnx")) / 1e6
    return Written(
        weights=f"{size:.1f} MB in float32, ONNX opset {OPSET}",
        use=use.replace("LENGTH", str(length)).replace(
            "CLASS", "" if classes is None else 'feed["label"] = np.array([0])  # of onnx.json\n'
        ),
        checks=[
            f"Largest difference between onnxruntime {version('onnxruntime')} and "
            f"Triptych's step: {result.difference:.2g}, over the outputs at each of {length} "
            f"positions of {ROWS} random sequences, float32 on a CPU.",
            f"Processor time of a step of these {ROWS} rows: {result.seconds * 1e3:.2f} ms with "
            f"onnxruntime, {result.own_seconds * 1e3:.2f} ms with Triptych.",
        ],
    )


def _write_decoder(
    core: DecoderOnly, classes: nn.Embedding | None, folder: Path, length: int
) -> None:
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


def _write_translator(model: EncoderDecoder, folder: Path, length: int) -> None:
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
            verbose=False,
        )
    for node in program.model.graph:
        node.metadata_props.clear()  # they hold paths of this machine
    program.save(str(path), external_data=False)
