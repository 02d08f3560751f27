"""Architectures of Hugging Face's transformers that compute the same functions as our models.

| model | architecture |
|---|---|
| translator, pre-norm, LayerNorm, ReLU or GELU, added positions, all embeddings shared | Pegasus |
| the same with post-norm | Marian |
| language model, pre-norm, RMSNorm, SwiGLU, rotary positions, no output bias | Llama |
| language model, pre-norm, LayerNorm, ReLU or GELU, added positions, no output bias | GPT-2 |

Position encodings are stored as a table. `hf_translator` and `hf_decoder` make the layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from triptych.training.run.model_files import StoredAs


@dataclass(frozen=True)
class Layout:
    """How an architecture of the library stores a model of ours."""

    architecture: str
    """Class of the library."""
    config: dict[str, Any]
    """Its config.json."""
    generation: dict[str, Any]
    """Its generation_config.json."""
    stored: dict[str, StoredAs]
    """Name in our model -> tensors of the file."""
    added: dict[str, Tensor]
    """Tensors that the library alone needs."""


def linear(ours: str, theirs: list[str], bias: bool = True, **how: Any) -> dict[str, StoredAs]:
    """Return how the weight and the bias of a linear map or norm are stored."""
    stored = {f"{ours}.weight": StoredAs(tuple(f"{name}.weight" for name in theirs), **how)}
    if bias:
        # A vector has no second axis.
        how.pop("transposed", None)
        stored[f"{ours}.bias"] = StoredAs(tuple(f"{name}.bias" for name in theirs), **how)
    return stored


def each(theirs: str, letters: str) -> list[str]:
    """Return the names of projections, such as q_proj, k_proj and v_proj for the letters qkv."""
    return [f"{theirs}.{letter}_proj" for letter in letters]
