"""Inputs of a pass and of a decoding step, and what a model keeps between steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar, cast

from torch import Tensor

LayerCache = dict[str, Tensor]
"""What the attention of one layer keeps of the positions that it has read, under names of its own:
`key` and `value` in every variant. B first, shapes fixed while decoding."""

Own = TypeVar("Own")
Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Memory:
    """Output of an encoder, which cross-attention reads."""

    features: Tensor
    """[B, K, D]."""
    real: Tensor | None = None
    """Bool [B, K], False on padding; None for no padding."""


@dataclass(frozen=True)
class ProjectedMemory:
    """Keys and values of an encoder's output: a row per source, which its hypotheses share."""

    keys: Tensor
    """[B, H, K, E], or [B, K, D] without heads."""
    values: Tensor
    """In the shape of the keys."""
    real: Tensor | None = None
    """Bool [B, K], False on padding; None for no padding."""


@dataclass(frozen=True)
class DecodingState(Generic[Own]):
    """What a model keeps between steps, in fixed shapes. `memory` has a row per source."""

    layers: list[LayerCache]
    """Cache of the self-attention of each layer."""
    memory: list[ProjectedMemory | None]
    """What cross-attention reads in each block; None for a block without."""
    own: Own
    """What the model keeps beside its layers: a dataclass of tensors, or None."""

    def select(self, rows: Tensor, memory_rows: Tensor | None = None) -> DecodingState[Own]:
        """A copy of rows int64 [n]; the memory is shared, or its `memory_rows` are copied."""

        def of_rows(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, rows)

        memory = self.memory
        if memory_rows is not None:
            memory = map_tensors(memory, lambda tensor: tensor.index_select(0, memory_rows))
        layers, own = map_tensors(self.layers, of_rows), map_tensors(self.own, of_rows)
        return replace(self, layers=layers, memory=memory, own=own)

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row rows[i] in place; rows int64 [R]; the memory is unchanged."""
        for tensor in tensors_of([self.layers, self.own]):
            tensor.copy_(tensor.index_select(0, rows))


def map_tensors(tree: Tree, change: Callable[[Any], Any]) -> Tree:
    """The same lists, tuples, dicts and dataclasses with every tensor changed; None stays."""
    part: Any = tree
    changed: Any = None
    if isinstance(part, list | tuple):
        changed = type(part)(map_tensors(item, change) for item in part)
    elif isinstance(part, dict):
        changed = {name: map_tensors(item, change) for name, item in part.items()}
    elif is_dataclass(part) and not isinstance(part, type):
        parts = {field.name: getattr(part, field.name) for field in fields(part)}
        changed = replace(part, **map_tensors(parts, change))
    elif part is not None:
        changed = change(part)
    return cast(Tree, changed)


def tensors_of(tree: object) -> list[Tensor]:
    """All tensors of lists, tuples, dicts and dataclasses, in the order of `map_tensors`."""
    tensors: list[Tensor] = []
    map_tensors(tree, tensors.append)
    return tensors


@dataclass(frozen=True)
class ForwardContext:
    """Inputs of a pass over positions 0..L-1 besides the features; shared by all layers."""

    real: Tensor | None = None
    """Bool [B, L], False on padding; None for no padding."""
    token_ids: Tensor | None = None
    """Token ids that the positions have read: int64 [B, L], -1 for none."""
    token_classes: Tensor | None = None
    """`TokenBias.token_classes` of the token ids; made once for all layers of a stack."""
    rotation: Tensor | None = None
    """`RotaryEmbedding.rotation` of positions 0..L-1, made once for all layers: [2, L, E]."""
    first_position: Tensor | None = None
    """Number of the first position in the position encodings, int64 scalar; None for 0."""
    memory: Memory | None = None
    """What cross-attention reads; None without cross-attention."""


NO_CONTEXT = ForwardContext()
"""The context of a pass without padding, token ids and memory."""


@dataclass(frozen=True)
class StepContext:
    """Inputs of a step of P consecutive positions besides the features; shared by all layers."""

    positions: Tensor
    """Int64 [P]."""
    slots: Tensor
    """Cache slots to which the keys and values are written: int64 [P]."""
    mask: Tensor
    """Added to the logits of the slots: [P, S], 0 where visible and -inf where not."""
    relative_index: tuple[Tensor, ...] = ()
    """`RelativeBias.index` of the positions and the slots: int64 [P, S] per table."""
    rotation: Tensor | None = None
    """`RotaryEmbedding.rotation` of the positions: [2, P, E]."""
    encodings: Tensor | None = None
    """Position encodings that the model adds to its inputs: [P, D]."""
    token_ids: Tensor | None = None
    """Token ids that the positions have read: int64 [B, P], -1 for none."""
    token_classes: Tensor | None = None
    """`TokenBias.token_classes` of the token ids; made once for all layers of a stack."""

    others: tuple[StepContext, ...] = ()
    """Contexts of the other attention variants of a stack, without encodings and token ids."""

    def of_variants(self) -> list[StepContext]:
        """The contexts of all attention variants of a stack, in the order of their layers."""
        return [self, *(replace(other, token_ids=self.token_ids) for other in self.others)]

    def at(self, step: int) -> StepContext:
        """The context of one step, of contexts with a leading axis of steps."""
        return map_tensors(self, lambda tensor: tensor[step])
