"""Sampling music of any length from a model with a window.

When the window is full it moves on as the windows of the evaluation do: the next one starts
length - context tokens later, reads its first `context` tokens as a prompt, with the token before
them in front, and goes on. So in sampling every token is drawn under the conditions under which
its like was scored.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding import generate as generation
from triptych.decoding.sampling import Sampling
from triptych.decoding.speculative import Draft
from triptych.domains.music.representation import Forbid

Progress = Callable[[int, int], None]


def extend(
    model: DecoderOnly,
    prompt: Tensor,
    *,
    n_new: int,
    length: int,
    context: int,
    sampling: Sampling,
    generator: torch.Generator,
    end: int | None = None,
    forbid: Forbid | None = None,
    progress: Progress | None = None,
    compile: bool = False,
    draft: Draft | None = None,
) -> Tensor:
    """Continue prompt, int64 [B, P] (P may be 0), by n_new tokens: [B, P + n_new] at most.

    length, context: of the windows, as in `DataConfig`. end: a row that draws it is filled with it,
    and the work ends when all rows have. forbid: called with all tokens since the prompt's first.
    compile, draft: as in `decoding.generate.generate`.
    """
    tokens = prompt
    total = prompt.shape[1] + n_new
    start = 0
    while tokens.shape[1] < total:
        # The window in which the evaluation would score the next token.
        while tokens.shape[1] >= start + length:
            start += length - context
        before = tokens[:, :start]
        n_known = tokens.shape[1] - start
        drawn = generation.generate(
            model,
            batch=len(tokens),
            length=min(length, total - start),
            sampling=sampling,
            generator=generator,
            prefix=tokens[:, start:],
            previous=before[:, -1] if start else None,
            end=end,
            constraint=_with_past(forbid, before),
            progress=_counted(progress, tokens.shape[1] - prompt.shape[1], n_new),
            compile=compile,
            draft=draft,
        )
        if end is not None and tokens.shape[1]:
            # A window without context (0 tokens of it) does not show that a row has ended.
            ended = tokens[:, -1:] == end  # [B, 1]
            drawn[:, n_known:] = drawn[:, n_known:].masked_fill(ended, end)
        tokens = torch.cat([before, drawn], dim=1)
        if end is not None and bool((tokens[:, -1] == end).all()):
            break
    return tokens


def _with_past(forbid: Forbid | None, before: Tensor) -> Forbid | None:
    """Show the rule what lies before the window, too: a note may sound since then."""
    if forbid is None:
        return None
    return lambda values: forbid(torch.cat([before, values], dim=1))


def _counted(progress: Progress | None, done: int, total: int) -> Progress | None:
    """Count over all windows."""
    if progress is None:
        return None
    return lambda step, steps: progress(done + step, total)
