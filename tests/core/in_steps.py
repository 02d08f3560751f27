"""A decoder applied as it decodes: a prefill, then steps of one position."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from triptych.core.state import NO_CONTEXT, ForwardContext
from triptych.core.transformer import Stack


def decode(decoder: Stack, x: Tensor, prefix: int, context: ForwardContext = NO_CONTEXT) -> Tensor:
    """Prefill of `prefix` positions, then steps of one position."""
    state = decoder.init_state(*x.shape[:2], context)
    token_ids = torch.zeros(x.shape[:2]) if context.token_ids is None else context.token_ids
    begin = ForwardContext(token_ids=token_ids[:, :prefix])
    parts = [decoder(x[:, :prefix], begin, state)] if prefix else []
    for t in range(prefix, x.shape[1]):
        now = decoder.step_context(torch.tensor([t]), state)
        now = replace(now, token_ids=token_ids[:, t : t + 1])
        parts.append(decoder.step(x[:, t : t + 1], state, now))
    return torch.cat(parts, dim=1)
