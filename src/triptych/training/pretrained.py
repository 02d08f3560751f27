"""Models that come with the package: bf16 weights that open as any checkpoint does."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import nn

from triptych.errors import UserError
from triptych.pretrained import read_facts


def pack(module: nn.Module) -> tuple[bytes, dict[str, str]]:
    """A module's tensors as a safetensors file, and {name: name of the tensor that it shares}.

    Parameters are rounded to bf16 (round to nearest even); other tensors, which may hold positions
    or counts, are kept as they are. Tensors that share one storage are written once.
    """
    seen: dict[int, str] = {}
    tied: dict[str, str] = {}
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            tied[name] = seen[id(tensor)]
            continue
        seen[id(tensor)] = name
        rounds = isinstance(tensor, nn.Parameter) and tensor.is_floating_point()
        value = tensor.detach().to(torch.bfloat16 if rounds else tensor.dtype)
        kept[name] = value.cpu().contiguous()
    return save(kept), tied


def unpack(weights: bytes, facts: dict[str, Any], *, name: str) -> dict[str, Any]:
    """What `read_checkpoint` returns, from the two files' content: weights widened to float32.

    facts: as `triptych.pretrained.read_facts` gives them. name: what errors call the weights.
    Raises UserError where the hash of the weights is another than the facts say.
    """
    found = hashlib.sha256(weights).hexdigest()
    if found != facts["sha256"]:
        raise UserError(
            f"the weights {name} are damaged: their sha256 is {found[:12]}..., expected "
            f"{facts['sha256'][:12]}...; install Triptych again"
        )
    state = {
        key: tensor.float() if tensor.dtype is torch.bfloat16 else tensor
        for key, tensor in load(weights).items()
    }
    for key, shared in facts["tied"].items():
        state[key] = state[shared]
    return {"triptych": facts["triptych"], "state_dict": state}


def read_pretrained(path: Path) -> dict[str, Any]:
    """Open NAME.safetensors with the NAME.json beside it; UserError where either is not sound."""
    return unpack(path.read_bytes(), read_facts(path), name=str(path))
