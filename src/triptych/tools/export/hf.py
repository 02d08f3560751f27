"""Format `hf`: a folder that Hugging Face's transformers opens, and Triptych too.

No code travels with it (`trust_remote_code` stays false): the weights have the names of an
architecture of the library that computes the same function, see `hf_layouts`.
"""

import contextlib
import io
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from triptych import pretrained
from triptych.core.models.decoder_only import DecoderOnly
from triptych.errors import UserError
from triptych.files.results import json_bytes
from triptych.text.tokenizer import TextFormat
from triptych.tools.export.hf_layouts import Layout, decoder_layout
from triptych.tools.export.original import Original, Written, usage
from triptych.tools.export.safetensors import check_read_back
from triptych.tools.export.tokenizer import tokenizer_files
from triptych.training.run.checkpoint import StoredAs

NAME = "hf"
PREFIX = "model."
"""Begins the names of weights in a checkpoint."""
PYTORCH = {"format": "pt"}
"""Header of safetensors files that the library asks for."""
CHECKED_LENGTH = 24
"""Most positions at which the library is compared."""
TOLERANCE = 1e-3
"""Largest difference of a logit from ours with which an export is written."""


def write(original: Original, folder: Path) -> Written:
    """Write model.safetensors, config.json, generation_config.json and the tokenizer.

    Raises UserError for a model that no architecture of the library computes.
    """
    files = tokenizer_files(original.model)
    layout = layout_of(original)
    state = {PREFIX + key: tensor for key, tensor in original.model.full_model.state_dict().items()}
    stored = {PREFIX + key: how for key, how in layout.stored.items()}
    if stored.keys() != state.keys():
        rest = sorted(stored.keys() ^ state.keys())
        raise RuntimeError(f"{layout.architecture} has no place for {rest}")
    tensors = {
        name: part
        for key, how in stored.items()
        if how.row is None
        for name, part in parts_of(state[key], how).items()
    } | layout.added
    weights = save({key: part.clone().contiguous() for key, part in tensors.items()}, PYTORCH)
    facts = original.metadata(weights, stored=stored)
    check_read_back(weights, facts, state)
    config = {**layout.config, "dtype": "float32", "torch_dtype": "float32"}
    content = json_bytes({**config, pretrained.EXPORTED: facts})
    (folder / pretrained.FOLDER_WEIGHTS).write_bytes(weights)
    (folder / pretrained.FOLDER_METADATA).write_bytes(content)
    (folder / "generation_config.json").write_bytes(json_bytes(layout.generation))
    for name, text in files.items():
        (folder / name).write_bytes(text)
    return Written(
        weights=f"{len(weights) / 1e6:.1f} MB in float32, as {layout.architecture} has them",
        use=usage("hf", architecture=layout.architecture),
        checks=[
            f"All {len(state)} tensors were read back and are equal to those of the model.",
            compared(original, layout, folder),
        ],
    )


def parts_of(tensor: Tensor, how: StoredAs) -> dict[str, Tensor]:
    """Return the parts of a tensor by their names; the inverse of `StoredAs.read` without `row`."""
    parts = list(tensor.chunk(len(how.names)))
    if how.heads is not None:
        parts = [halved(part, how.heads) if n < 2 else part for n, part in enumerate(parts)]
    if how.transposed:
        parts = [part.mT for part in parts]
    return dict(zip(how.names, parts, strict=True))


def halved(rows: Tensor, heads: int) -> Tensor:
    """Rows [H E, ...] with the even features of each head before the odd ones: see `paired`."""
    reordered: Tensor = rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return reordered


def layout_of(original: Original) -> Layout:
    """Return the layout of a model; UserError where there is none."""
    model, settings = original.model.full_model, original.model.settings
    text = original.model.text_format()
    if text is not None and isinstance(model, DecoderOnly):
        return decoder_layout(model, settings.model.transformer, text, NAME)
    raise UserError(
        f"no architecture of transformers computes the {type(model).__name__} of the domain "
        f"{original.domain}; expected another --format"
    )


def compared(original: Original, layout: Layout, folder: Path) -> str:
    """Return a sentence about the logits of the library at every position of random sequences.

    RuntimeError where they differ by more than rounding.
    """
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            transformers = import_module("transformers")
            kind = getattr(transformers, layout.architecture)
            library = kind.from_pretrained(str(folder)).eval()
    except ImportError:
        return "Not compared: transformers is not installed (pip install 'triptych[bench]')."
    model = original.model.full_model
    most = min(CHECKED_LENGTH, layout.config.get("n_positions", CHECKED_LENGTH))
    generator = torch.Generator().manual_seed(0)
    size = layout.config["vocab_size"]
    tokens = torch.randint(5, size, (3, most), generator=generator)
    with torch.no_grad():
        difference = largest_difference(model, library, tokens)
    if not difference <= TOLERANCE:
        raise RuntimeError(f"{layout.architecture} gives other logits: {difference:.2g}")
    return (
        f"Largest difference of a logit between transformers {transformers.__version__} and "
        f"Triptych: {difference:.2g}, at each of {most} positions of 3 random sequences, float32 "
        "on a CPU."
    )


def largest_difference(model: Any, library: Any, tokens: Tensor) -> float:
    """Return the largest difference of a logit over all positions of sequences int64 [B, L]."""
    start = torch.full_like(tokens[:, :1], TextFormat.START)  # [B, 1]
    ours = model(tokens)  # [B, L, V]
    theirs = library(input_ids=torch.cat([start, tokens[:, :-1]], dim=1))
    return float((ours - theirs.logits).abs().max())
