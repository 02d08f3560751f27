"""Format `onnx`: the graph of a decoding step for ONNX runtimes.

The step has the value before a position, the position and the caches as inputs; the parameters of
the output distribution and the caches after it as outputs. The batch size is free.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from triptych.core.models.base import NO_CONDITION, Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.errors import UserError
from triptych.files.results import json_bytes
from triptych.tools.export.onnx_graphs import OPSET, STEP, named_tensors, save_decoder
from triptych.tools.export.original import Original, Written, usage
from triptych.tools.export.tokenizer import tokenizer_files

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
