"""Weights as safetensors with their metadata as JSON: shipped models and exported folders.

Reads the files of `triptych.pretrained`; no pickle. A folder of `triptych export` may store the
weights under the names of another library; its metadata then say how each tensor of Triptych's
model is read from them (`StoredAs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

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


def paired(rows: Tensor, heads: int) -> Tensor:
    """Rows [H E, ...] of a file in the order of Triptych, which rotates features 2i and 2i + 1.

    Other libraries rotate i and i + E / 2 together.
    """
    reordered: Tensor = rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    return reordered


def from_safetensors(weights: bytes, facts: dict[str, Any], *, name: str) -> dict[str, Any]:
    """Return the content that `read_checkpoint` returns, with the weights in float32.

    facts: of `pretrained.read_metadata`. Raises UserError where they have another hash.
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
    """Return the content of a safetensors file with its metadata, as `from_safetensors` does."""
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
