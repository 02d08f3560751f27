"""Weights as safetensors with their metadata as JSON: shipped models and exported folders.

Writes and reads the files of `triptych.pretrained`; no pickle. A folder of `triptych export` may
store the weights under the names of another library; its metadata then say how each tensor of
Triptych's model is read from them (`StoredAs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from triptych import pretrained
from triptych.errors import UserError


@dataclass(frozen=True)
class StoredAs:
    """Tensors of a file from which one tensor of Triptych's model is read."""

    names: tuple[str, ...]
    """Names in the file; the parts follow one another along the first axis."""
    transposed: bool = False
    """Whether the file has the matrix with inputs first, as GPT-2's layers do."""
    heads: int | None = None
    """Heads of a rotary projection whose file pairs feature i with i + E / 2; None for others."""
    row: int | None = None
    """The row of the stored table that is the tensor; None for all of it."""

    def read(self, stored: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor as Triptych's model has it."""
        parts = [stored[name] for name in self.names]
        if self.transposed:
            parts = [part.mT for part in parts]
        if self.heads is not None:  # of queries and keys; values are not rotated
            parts = [paired(part, self.heads) if n < 2 else part for n, part in enumerate(parts)]
        whole = torch.cat(parts)
        return whole if self.row is None else whole[self.row]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        """Return the parts of a tensor by their names; the inverse of `read` without `row`."""
        parts = list(tensor.chunk(len(self.names)))
        if self.heads is not None:
            parts = [halved(part, self.heads) if n < 2 else part for n, part in enumerate(parts)]
        if self.transposed:
            parts = [part.mT for part in parts]
        return dict(zip(self.names, parts, strict=True))


def halved(rows: Tensor, heads: int) -> Tensor:
    """Rows [H E, ...] with the even features of each head before the odd ones.

    Triptych rotates features 2i and 2i + 1 together, other libraries i and i + E / 2.
    """
    reordered: Tensor = rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return reordered


def paired(rows: Tensor, heads: int) -> Tensor:
    """The inverse of `halved`."""
    reordered: Tensor = rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    return reordered


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


def metadata(
    weights: bytes,
    header: dict[str, Any],
    *,
    name: str,
    card: dict[str, str],
    metrics: dict[str, Any],
    parameters: int,
    tied: Mapping[str, str] | None = None,
    stored: Mapping[str, StoredAs] | None = None,
) -> dict[str, Any]:
    """Return the metadata of a weights file, JSON types; see `pretrained.read_metadata`.

    header: of the checkpoint, `content["triptych"]`. parameters: their number. tied: of
    `to_safetensors`. stored: for weights under the names of another library.
    """
    content = {
        "format": pretrained.FORMAT,
        "name": name,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "parameters": parameters,
        "card": card,
        "metrics": metrics,
        "tied": dict(tied or {}),
        "triptych": header,
    }
    if stored is not None:
        content["stored_as"] = {key: asdict(how) for key, how in stored.items()}
    return content


def from_safetensors(weights: bytes, facts: dict[str, Any], *, name: str) -> dict[str, Any]:
    """Return the content that `read_checkpoint` returns, with the weights in float32.

    facts: of `metadata`. name: of the weights, for the message. Raises UserError if the hash of the
    weights is not the one in the metadata.
    """
    digest = hashlib.sha256(weights).hexdigest()
    if digest != facts["sha256"]:
        raise UserError(
            f"the weights {name} are damaged or were changed: their sha256 is {digest[:12]}..., "
            f"expected {facts['sha256'][:12]}...; install Triptych or export the model again"
        )
    state = {
        key: tensor.float() if tensor.dtype is torch.bfloat16 else tensor
        for key, tensor in load(weights).items()
    }
    if "stored_as" in facts:
        how = {key: StoredAs(**plain) for key, plain in facts["stored_as"].items()}
        state = {key: stored.read(state) for key, stored in how.items()}
    for key, shared in facts["tied"].items():
        state[key] = state[shared]
    return {"triptych": facts["triptych"], "state_dict": state}


def read_model(weights: Path) -> dict[str, Any]:
    """Return the content of a safetensors file with its metadata, as `from_safetensors` does.

    Raises UserError for metadata or weights that are missing, damaged or not of Triptych.
    """
    facts = pretrained.read_metadata(weights)
    try:
        content = weights.read_bytes()
    except OSError as error:
        raise UserError(
            f"the weights {weights} cannot be read ({error.strerror}); expected a model of "
            "`triptych export --format safetensors` or hf"
        ) from None
    try:
        return from_safetensors(content, facts, name=str(weights))
    except (
        *(SafetensorError, KeyError, TypeError),
        *(AttributeError, IndexError, ValueError, RuntimeError),  # metadata that were changed
    ) as error:
        raise UserError(
            f"{weights} and its metadata do not fit together ({error!r}); export the model again"
        ) from None
