"""Inputs of a pass over whole sequences and of a decoding step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class ForwardContext:
    """Inputs of a pass over positions 0..L-1 besides the features; shared by all layers."""

    real: Tensor | None = None
    """Bool [B, L], False on padding; None for no padding."""
    token_ids: Tensor | None = None
    """Token ids that the positions have read: int64 [B, L], -1 for none."""
    token_classes: Tensor | None = None
    """`RelativeBias.token_classes` of the token ids; made once for all layers of a stack."""
    rotation: Tensor | None = None
    """`RotaryEmbedding.rotation` of positions 0..L-1, made once for all layers: [2, L, E]."""
    first_position: Tensor | None = None
    """Number of the first position in the position encodings, int64 scalar; None for 0."""
    memory: Tensor | None = None
    """Output of an encoder: [B, K, D]; None without cross-attention."""
    memory_real: Tensor | None = None
    """Bool [B, K], False on padding; None for no padding."""


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
    """`RelativeBias.token_classes` of the token ids; made once for all layers of a stack."""

    others: tuple[StepContext, ...] = ()
    """Contexts of the other attention variants of a stack, without encodings and token ids."""

    def of_variants(self) -> list[StepContext]:
        """The contexts of all attention variants of a stack, in the order of their layers."""
        return [self, *(replace(other, token_ids=self.token_ids) for other in self.others)]

    def at(self, step: int) -> StepContext:
        """The context of one step, of contexts with a leading axis of steps."""
        return StepContext(
            self.positions[step],
            self.slots[step],
            self.mask[step],
            tuple(index[step] for index in self.relative_index),
            None if self.rotation is None else self.rotation[step],
            None if self.encodings is None else self.encodings[step],
            others=tuple(other.at(step) for other in self.others),
        )
