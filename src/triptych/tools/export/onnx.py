"""Format `onnx`: graphs of a decoding step, and of a translator's encoder, for ONNX runtimes.

The step has the value before a position, the position and the caches as inputs; the parameters of
the output distribution and the caches after it as outputs. The batch size is free, and in a
translator the length of the source and the capacity of the caches too.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from triptych.core.models.base import NO_CONDITION, AutoregressiveModel, Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.core.state import DecodingState
from triptych.errors import UserError
from triptych.files.results import json_bytes
from triptych.text.tokenizer import TextFormat
from triptych.tools.export.onnx_graphs import (
    ENCODER,
    OPSET,
    STEP,
    named_tensors,
    random_sources,
    save_decoder,
    save_translator,
)
from triptych.tools.export.original import Original, Written, usage
from triptych.tools.export.tokenizer import tokenizer_files

ABOUT = "onnx.json"
"""File with the length, the order of positions and the vocabulary."""
TRANSLATION_LENGTH = 64
"""Positions at which a translator is compared."""
TOLERANCE = 1e-3
"""Largest difference of an output from ours with which an export is written."""
ROWS = 3
"""Rows of the batch with which a graph is compared; graphs are made with two."""


def write(original: Original, folder: Path) -> Written:
    """Write step.onnx, for a translator encoder.onnx, and what is needed to use them.

    Raises UserError for a model of another kind.
    """
    model = original.model.full_model
    about: dict[str, Any] = {"name": original.name, "domain": original.domain}
    files = tokenizer_files(original.model)
    decoder = original.model.decoder()
    classes = None if decoder is None else decoder.classes
    if isinstance(model, EncoderDecoder):
        length = TRANSLATION_LENGTH
        save_translator(model, folder, length)
        difference = compare_translator(model, folder, length)
        use = usage("onnx_translator", length=str(length))
    elif decoder is not None:
        length = decoder.length
        about |= decoder.about
        save_decoder(decoder.model, classes, folder, length)
        difference = compare_decoder(decoder.model, classes, folder, length)
        label = "" if classes is None else 'feed["label"] = np.array([0])  # of onnx.json\n'
        use = usage("onnx_decoder", length=str(length), label=label)
    else:
        raise UserError(
            f"onnx has graphs for translators with an encoder and a decoder and for decoders "
            f"without an encoder; this is a {type(model).__name__} of the domain "
            f"{original.domain}: expected --format safetensors"
        )
    if not difference <= TOLERANCE:
        raise RuntimeError(f"the graph gives other outputs: {difference:.2g}")
    about |= {"length": length, "vocabulary": None if files else original.header["vocabulary"]}
    for name, content in {**files, ABOUT: json_bytes(about)}.items():
        (folder / name).write_bytes(content)
    size = sum(path.stat().st_size for path in folder.glob("*.onnx")) / 1e6
    return Written(
        weights=f"{size:.1f} MB in float32, ONNX opset {OPSET}",
        use=use,
        checks=[
            f"Largest difference between onnxruntime {version('onnxruntime')} and "
            f"Triptych's step: {difference:.2g}, over the outputs at each of {length} "
            f"positions of {ROWS} random sequences, float32 on a CPU.",
        ],
    )


def compare_decoder(
    core: DecoderOnly, classes: nn.Embedding | None, folder: Path, length: int
) -> float:
    """Return the largest difference of an output of a decoder-only model's graph."""
    generator = torch.Generator().manual_seed(0)
    head: Any = core.head
    high = head.levels if core.value_shape else head.n_parameters
    values = torch.randint(high, (ROWS, length, *core.value_shape), generator=generator)
    feed: dict[str, Any] = {}
    condition = NO_CONDITION
    if classes is not None:
        label = torch.arange(ROWS) % classes.num_embeddings
        condition = Condition(classes(label).detach().unsqueeze(1))
        feed["label"] = label.numpy()
    state = core.init_state(ROWS, length, condition=condition)
    before = torch.cat([torch.full_like(values[:, :1], -1), values[:, :-1]], dim=1)
    feed |= _arrays(state)
    return _compare_steps(core, state, before, folder, feed)


def compare_translator(model: EncoderDecoder, folder: Path, length: int) -> float:
    """Return the largest difference of an output of a translator's graphs."""
    source, padding = random_sources(model, ROWS)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, model.head.n_parameters, (ROWS, length), generator=generator)
    tokens[:, 0] = TextFormat.START
    encoder = open_graph(folder / ENCODER)
    inputs = {"source": source.numpy(), "padding": padding.numpy()}
    names = [output.name for output in encoder.get_outputs()]
    with torch.no_grad():
        state = model.init_state(ROWS, length, condition=model.encode(source, padding))
    outputs = dict(zip(names, encoder.run(None, inputs), strict=True))
    feed = {**_arrays(state), **outputs, "padding": padding.numpy()}
    return _compare_steps(model, state, tokens, folder, feed)


@torch.no_grad()
def _compare_steps(
    model: AutoregressiveModel,
    state: DecodingState[Any],
    before: Tensor,
    folder: Path,
    feed: dict[str, Any],
) -> float:
    """Return the largest difference between the graph of a step and the model's own step.

    before: the value before each position [B, L, ...], below 0 for none.
    """
    step = open_graph(folder / STEP)
    outputs = [output.name for output in step.get_outputs()]
    worst = 0.0
    for position in range(before.shape[1]):
        value, at = before[:, position : position + 1], torch.tensor([position])
        if position == 0 and bool((value < 0).all()):
            expected = model.prefill(value[:, :0], state)  # [B, Z]
        else:
            expected = model.step(value, at, state)[:, 0]  # [B, Z]
        feed |= {"value": value.numpy(), "position": at.numpy()}
        logits, *caches = step.run(outputs, feed)
        feed |= dict(zip((name.removesuffix("_out") for name in outputs[1:]), caches, strict=True))
        worst = max(worst, float(np.abs(logits - expected.numpy()).max()))
    return worst


def _arrays(state: DecodingState[Any]) -> dict[str, Any]:
    """Return copies of the tensors as arrays; a model's own steps write into the tensors."""
    return {name: tensor.numpy().copy() for name, tensor in named_tensors(state).items()}


def open_graph(path: Path) -> Any:
    """Return a session of onnxruntime with one thread."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
