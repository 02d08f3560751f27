"""Format `safetensors`: the model as Triptych opens it again, without pickle."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from triptych import pretrained
from triptych.errors import UserError
from triptych.files.results import json_bytes
from triptych.tools.export.card import command
from triptych.tools.export.original import Original, Written, usage
from triptych.tools.export.tokenizer import tokenizer_files
from triptych.training.run.checkpoint import ROW_SCALES, from_safetensors


def write(original: Original, folder: Path) -> Written:
    """Write model.safetensors, config.json and, for text, tokenizer.json."""
    module = nn.ModuleDict({"model": original.model.full_model})  # names begin with "model."
    weights, tied = to_safetensors(module, torch.float32)
    config = original.metadata(weights, tied=tied)
    state = module.state_dict()
    check_read_back(weights, config, state)
    (folder / pretrained.FOLDER_WEIGHTS).write_bytes(weights)
    (folder / pretrained.FOLDER_METADATA).write_bytes(json_bytes(config))
    with suppress(UserError):  # a tokenizer that config.json alone can hold
        for name, text in tokenizer_files(original.model).items():
            (folder / name).write_bytes(text)
    return Written(
        weights=f"{len(weights) / 1e6:.1f} MB in float32",
        use=usage("safetensors", command=command(original.domain, "FOLDER")),
        checks=[f"All {len(state)} tensors were read back and are equal to those of the model."],
    )


def to_safetensors(module: nn.Module, dtype: torch.dtype) -> tuple[bytes, dict[str, str]]:
    """Return a model's weights as safetensors, and {name: tensor that it shares}.

    Parameters are rounded to dtype, buffers keep their own. A shared tensor is written once. With
    int8, a matrix has a bfloat16 scale for each of its rows, and vectors are bfloat16.
    """
    seen: dict[int, str] = {}
    tied: dict[str, str] = {}
    kept: dict[str, Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            tied[name] = seen[id(tensor)]
            continue
        seen[id(tensor)] = name
        value = tensor.detach().cpu()
        if isinstance(tensor, nn.Parameter) and tensor.is_floating_point():
            if dtype is not torch.int8:
                value = value.to(dtype)
            elif value.ndim < 2:
                value = value.bfloat16()
            else:
                value, kept[name + ROW_SCALES] = in_int8(value)
        kept[name] = value.contiguous()
    return save(kept, metadata={"format": "pt"}), tied


def in_int8(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Round [..., n] to whole numbers from -127 to 127, int8, and a bfloat16 scale [..., 1] each.

    Number times scale is the rounded weight.
    """
    largest = matrix.float().abs().amax(-1, keepdim=True)  # [..., 1]
    scales = (largest / 127).bfloat16()
    # A scale that bfloat16 rounds down would need numbers beyond 127; a row of zeros has scale 0.
    numbers = (matrix / scales.float().clamp(min=1e-30)).round().clamp(-127, 127)
    return numbers.to(torch.int8), scales


def check_read_back(weights: bytes, facts: dict[str, Any], state: Mapping[str, Tensor]) -> None:
    """Raise RuntimeError where weights and metadata give other tensors than those of the model."""
    plain = json.loads(json_bytes(facts))
    opened = from_safetensors(weights, plain, name=pretrained.FOLDER_WEIGHTS)["state_dict"]
    if opened.keys() != state.keys() or any(
        not torch.equal(opened[key], tensor) for key, tensor in state.items()
    ):
        raise RuntimeError("the export has other weights than the model")
