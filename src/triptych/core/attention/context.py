"""Context of a pass over whole sequences, and of one decoding step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class ForwardContext:
    """Inputs of a pass over positions 0..L-1 besides the features; shared by all layers."""

    padding: Tensor | None = None
    """Bool [B, L], True on padding; None for none."""
    token_ids: Tensor | None = None
    """Token ids that the positions have read: int64 [B, L], -1 for none."""
    memory: Tensor | None = None
    """Output of an encoder: [B, K, D]; None without cross-attention."""
    memory_padding: Tensor | None = None
    """Bool [B, K], True on padding; None for none."""


NO_CONTEXT = ForwardContext()
"""The context of a pass without padding, token ids and memory."""


@dataclass(frozen=True)
class StepContext:
    """What a decoding step of P consecutive positions needs besides its input and the cache.

    Computed once for all layers with the same pattern (`SelfAttention.sharing_key`).
    """

    positions: Tensor
    """Int64 [P]."""
    slots: Tensor
    """Cache slots to which the keys and values are written: int64 [P]."""
    mask: Tensor
    """Added to the logits of the slots: [P, S], 0 where visible and -inf where not."""
    relative_index: tuple[Tensor, ...] = ()
    """`MaskPattern.relative_index` of the positions and the slots: int64 [P, S] per term."""
    token_ids: Tensor | None = None
    """Token ids that the positions have read: int64 [B, P], -1 for none."""

    def at(self, step: int) -> StepContext:
        """The context of one step, of contexts with a leading axis of steps."""
        return StepContext(
            self.positions[step],
            self.slots[step],
            self.mask[step],
            tuple(term[step] for term in self.relative_index),
        )


StepContexts = dict[Hashable, StepContext]
"""Context of a step for each pattern of a stack, by `SelfAttention.sharing_key`."""


def with_token_ids(contexts: StepContexts, token_ids: Tensor) -> StepContexts:
    """The same contexts with the token ids of the step: int64 [B, P]."""
    return {key: replace(context, token_ids=token_ids) for key, context in contexts.items()}


def require_token_ids(context: ForwardContext | StepContext) -> Tensor:
    """The token ids of a context; ValueError where it has none."""
    if context.token_ids is None:
        raise ValueError("this attention has a token-dependent bias and needs token ids")
    return context.token_ids
