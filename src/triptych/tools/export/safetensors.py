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
from triptych.training.run.checkpoint import from_safetensors


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

    Parameters are rounded to dtype, buffers keep their own. A shared tensor is written once.
    """
    seen: dict[int, str] = {}
    tied: dict[str, str] = {}
    kept: dict[str, Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            tied[name] = seen[id(tensor)]
            continue
        seen[id(tensor)] = name
        rounds = isinstance(tensor, nn.Parameter) and tensor.is_floating_point()
        value = tensor.detach().to(dtype if rounds else tensor.dtype)
        kept[name] = value.cpu().contiguous()
    return save(kept, metadata={"format": "pt"}), tied


def check_read_back(weights: bytes, facts: dict[str, Any], state: Mapping[str, Tensor]) -> None:
    """Raise RuntimeError where weights and metadata give other tensors than those of the model."""
    plain = json.loads(json_bytes(facts))
    opened = from_safetensors(weights, plain, name=pretrained.FOLDER_WEIGHTS)["state_dict"]
    if opened.keys() != state.keys() or any(
        not torch.equal(opened[key], tensor) for key, tensor in state.items()
    ):
        raise RuntimeError("the export has other weights than the model")
