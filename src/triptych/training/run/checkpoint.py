"""Checkpoint files and exported models: header, reading, refusals in one sentence, and their mean.

The header has what opens a model (`domain`, `model`, a domain's `task` and further fields of its
`ModelSettings`, `vocabulary`), facts about its weights, and the settings of its run. Those (`data`,
`optim`, `run`, `trainer`) are plain JSON: `train` reads them to go on with a run or to begin with
its weights, `evaluate` reads `data`, and nothing else parses them.

A model that is shipped or exported is a safetensors file with its metadata as JSON, no pickle. A
folder of `triptych export` may store the weights under the names of another library; its metadata
then say how each tensor of Triptych's model is read from them (`StoredAs`).

Needs no Lightning; `callbacks.checkpointing` writes checkpoints.
"""

import hashlib
import os
import pickle
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata as packages
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from triptych.config.schema import from_plain
from triptych.errors import UserError
from triptych.pretrained import PREFIX, WEIGHTS, find, read_metadata, weights_in
from triptych.training.finetune.parts import merge_adapters
from triptych.types import Checked
from triptych.version import __version__

FORMAT = 2
"""Version of the checkpoint's layout; others are refused."""

NEEDED = ("domain", "model", "vocabulary")
"""Keys of the header without which no model opens."""

ROW_SCALES = ":scales"
"""End of the name, in a safetensors file, of the scales of a tensor's rows: [..., 1] for [..., n].
"""

TRAINING_ONLY = ("dropout", "label_smoothing", "activation_checkpointing", "parallel_penalty")
"""Ends of the names of settings of a model that a trained one does not read."""


@dataclass(frozen=True)
class ModelSettings(Checked):
    """Settings with which a trained model is opened, keys of the header of a checkpoint.

    A domain adds what its use needs: no data, optimiser or settings of the run.
    """

    model: Any
    """Sizes and parts of the model; `model.transformer` is its `TransformerConfig`."""

    @classmethod
    def from_header(cls, header: dict[str, Any]) -> Self:
        """Return the settings that the header of a checkpoint has; UserError as `from_plain`."""
        plain = {f.name: header[f.name] for f in fields(cls) if f.name in header}
        return from_plain(cls, plain, where="the settings of the model")

    def build_model(self, vocabulary: Any) -> nn.Module:
        """Return a model with initial weights; ValueError for settings that do not fit."""
        raise NotImplementedError


def header(
    metadata: dict[str, Any], *, seed: int, step: int, metrics: dict[str, float]
) -> dict[str, Any]:
    """Return checkpoint["triptych"]; metadata: of `run_metadata`."""
    return {
        "format": FORMAT,
        **metadata,
        "versions": versions(),
        "commit": code_commit(),
        "seed": seed,
        "step": step,
        "metrics": dict(metrics),
    }


def git(folder: Path, *words: str) -> str:
    """Return what a git command in a folder prints; OSError or SubprocessError if it fails."""
    command = ["git", "-C", str(folder), *words]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return answer.stdout.strip()


@cache
def code_commit() -> str | None:
    """Return the git commit of the code, "-dirty" if tracked files changed; None if no checkout."""
    package = Path(__file__).parents[2]
    try:
        # An installed package may lie inside another repository, which does not track it.
        git(package, "ls-files", "--error-unmatch", "__init__.py")
        commit = git(package, "rev-parse", "HEAD")
        changed = git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def versions() -> dict[str, str]:
    """Return the versions of Triptych, torch, Lightning and Python."""
    return {
        "triptych": __version__,
        "torch": str(torch.__version__),
        "lightning": packages.version("pytorch-lightning"),
        "python": platform.python_version(),
    }


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a checkpoint on the CPU, read with weights_only=True.

    content["triptych"] is the `header`, content["state_dict"] the weights, memory-mapped. A
    `.safetensors` file or pretrained:NAME is a shipped model, a folder one of `triptych export`.
    Raises UserError for a file that is missing, damaged, of another format or no checkpoint.
    """
    # A Path is a file, also one that is named like a shipped model.
    shipped = isinstance(path, str) and path.startswith(PREFIX)
    file = find(str(path)) if shipped else Path(path).expanduser()
    if file.is_dir():
        file = weights_in(file)

    def refusal(why: str) -> UserError:
        return UserError(
            f"the checkpoint {file} {why}; expected a file such as "
            "runs/NAME/checkpoints/best.ckpt from `triptych train`, or a folder of "
            "`triptych export`"
        )

    content: Any
    try:
        if file.suffix == WEIGHTS:
            content = from_safetensors(file.read_bytes(), read_metadata(file), name=str(file))
        else:
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise refusal(f"cannot be read ({error.strerror})") from error
    except pickle.UnpicklingError as error:
        raise refusal("was not written by Triptych (it holds other objects)") from error
    except (
        *(RuntimeError, EOFError, OSError, ValueError, SafetensorError),
        *(KeyError, TypeError, AttributeError, IndexError),  # metadata that were changed
    ) as error:
        size = file.stat().st_size
        raise refusal(f"is no checkpoint, cut off or damaged ({size:,} bytes)") from error
    header = content.get("triptych") if isinstance(content, dict) else None
    if not isinstance(header, dict) or "state_dict" not in content:
        raise refusal("was not written by Triptych (it has no header 'triptych')")
    if header.get("format") != FORMAT:
        version = header.get("versions", {}).get("triptych", "of another version")
        raise refusal(
            f"has format {header.get('format')}, written by Triptych {version}; this version reads "
            f"format {FORMAT}"
        )
    if missing := [key for key in NEEDED if key not in header]:
        raise refusal(f"was not written by Triptych (its header has no {missing[0]})")
    found: dict[str, Any] = content
    return found


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
    """Rows [H E, ...] of a file that rotates features i and i + E / 2, in the order 2i, 2i + 1."""
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
    stored = load(weights)
    scales = {key: stored.pop(key).float() for key in [*stored] if key.endswith(ROW_SCALES)}
    state = {
        key: tensor.float() if tensor.dtype in (torch.bfloat16, torch.int8) else tensor
        for key, tensor in stored.items()
    }
    for key, scale in scales.items():
        state[key.removesuffix(ROW_SCALES)] *= scale
    if "stored_as" in facts:
        how = {key: StoredAs(**plain) for key, plain in facts["stored_as"].items()}
        state = {key: stored.read(state) for key, stored in how.items()}
    for key, shared in facts["tied"].items():
        state[key] = state[shared]
    return {"triptych": facts["triptych"], "state_dict": state}


def merged_weights(content: dict[str, Any]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint's content, with low-rank adapters merged into them."""
    return merge_adapters(content["state_dict"], content["triptych"].get("lora_alpha"))


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Any]:
    """Return the content of a checkpoint whose weights are the mean of those of checkpoints.

    Vaswani et al. 2017, section 6.1. The mean is computed in float32, of the weights that
    `triptych.load` opens: moving averages, merged adapters. Tensors of integers and the header are
    those of the highest step; in the header `averaged` has file and step of each checkpoint, and
    `metrics` is empty. A run can begin from the content (run.start.init_from), not be resumed.

    checkpoints: as `read_checkpoint` takes them. Raises UserError where domain, vocabulary, names
    or shapes of weights, or settings of the model differ other than `TRAINING_ONLY`.
    """
    contents = [read_checkpoint(path) for path in checkpoints]
    headers = [content["triptych"] for content in contents]
    weights = [merged_weights(content) for content in contents]
    shapes = [{name: weight.shape for name, weight in state.items()} for state in weights]
    for path, header, own in zip(checkpoints, headers, shapes, strict=True):
        differing = [key for key in NEEDED if _in_use(header[key]) != _in_use(headers[0][key])]
        differing += sorted(name for name, _ in own.items() ^ shapes[0].items())
        if differing:
            raise UserError(
                f"the weights of {checkpoints[0]} and {path} cannot be averaged: their "
                f"{differing[0]} differs; expected checkpoints of one model, such as those of a run"
            )
    steps = [int(header["step"]) for header in headers]
    last = steps.index(max(steps))
    averaged = [
        {"checkpoint": path.name, "step": step}
        for path, step in zip(checkpoints, steps, strict=True)
    ]
    means = {
        name: torch.stack([state[name].float() for state in weights]).mean(0)
        if weight.is_floating_point()
        else weight
        for name, weight in weights[last].items()
    }
    return {
        "triptych": {**headers[last], "metrics": {}, "averaged": averaged},
        "state_dict": means,
    }


def _in_use(settings: Any) -> Any:
    """Return settings without those of `TRAINING_ONLY`."""
    if not isinstance(settings, Mapping):
        return settings
    return {
        name: _in_use(value) for name, value in settings.items() if not name.endswith(TRAINING_ONLY)
    }


def core_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint by their names in the core model, without "model."."""
    return {name.removeprefix("model."): weight for name, weight in weights.items()}


def check_domain(header: dict[str, Any], domain: str, named: object) -> None:
    """Raise UserError if the checkpoint is of another domain; named: its name in the message."""
    own = header["domain"]
    if own != domain:
        raise UserError(
            f"{named} is of the domain {own}; expected a checkpoint of the domain {domain}"
        )
