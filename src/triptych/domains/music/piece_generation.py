"""Sampling of pieces of any length from a model with a window.

When the window is full it moves as the windows of the evaluation do: the next one starts
sequence_length - overlap tokens later, reads its first `overlap` tokens as a prompt with the token
before them, and continues. So every token is sampled with the context with which it would be
scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triptych.core.conditioner import NO_CONDITION, Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding import generate as generation
from triptych.decoding.constraints import ByPriority
from triptych.decoding.generate import CompiledSteps, Draft
from triptych.decoding.particles import particle_filter
from triptych.decoding.resample import resample
from triptych.decoding.sampling import Given, LogitsConstraint
from triptych.domains.music.data import window_starts
from triptych.domains.music.melody import WindowMelody
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.tokenizers.base import Ids
from triptych.types import Progress

MAX_DRAFTED_ROWS = 4
"""Largest number of pieces sampled with drafts; all rows wait for the worst draft."""


def sample_pieces(
    model: DecoderOnly,
    settings: MusicSettings,
    count: int,
    *,
    seconds: float | None = None,
    length: int | None = None,
    prompt: Ids | None = None,
    constraints: Sequence[LogitsConstraint] = (),
    melody: Ids | None = None,
    seed: int = 0,
    compile: bool = False,
    **options: Any,
) -> list[Ids]:
    """Sample `count` pieces as tokens, each beginning with the prompt.

    settings: the windows and the tokenizer. seconds or length: see
    `MusicModel.sample`. constraints: rules besides the tokenizer's own, which come first; see
    `ByPriority`. melody: of the whole piece, for a model with an encoder. options: sampling and
    progress of `continue_tokens`. After the end of a piece its tokens are END.
    """
    tokenizer = settings.tokenizer
    device = model.start.device
    draft = None  # of held notes, where it makes sampling faster
    if tokenizer.repeat_lag and count <= MAX_DRAFTED_ROWS and device.type == "cpu" and not compile:
        draft = Draft(tokenizer.repeat_lag)
    first = np.zeros(0, dtype=np.int64) if prompt is None else prompt
    grammar = tokenizer.grammar(count, seconds=seconds, n_prompt=len(first))
    rules = [*constraints] if grammar is None else [grammar, *constraints]
    if melody is not None:
        reader = WindowMelody(tokenizer, settings.sequence_length)
        options["condition"] = partial(reader.condition, model, melody)
    tokens = continue_tokens(
        model,
        torch.from_numpy(first).to(device).expand(count, -1),
        n_new=tokenizer.n_tokens(seconds=seconds, length=length),
        length=settings.sequence_length,
        overlap=settings.overlap,
        generator=torch.Generator(device).manual_seed(seed),
        end=tokenizer.end,
        constraint=ByPriority(rules) if rules else None,
        compiled=CompiledSteps(model) if compile else None,
        draft=draft,
        **options,
    )
    rows = tokens.cpu().numpy()
    return [tokenizer.trim(row, seconds=seconds, n_prompt=len(first)) for row in rows]


def continue_tokens(
    model: DecoderOnly,
    prompt: Tensor,
    *,
    n_new: int,
    length: int,
    overlap: int,
    end: int | None = None,
    constraint: LogitsConstraint | None = None,
    condition: Callable[[Tensor], Condition] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Tensor:
    """Continue prompt, int64 [B, P] with P from 0, by n_new tokens: [B, P + n_new] at most.

    length, overlap: of the windows, in tokens. end: a row that samples it is filled with it; stops
    when all rows have. constraint: called with all tokens from the prompt's first one on.
    condition: called with the tokens before each window, int64 [B, t]. progress: called with (new
    tokens, n_new), and where all rows ended earlier with (new tokens, new tokens).
    options: sampling, generator, compiled and draft of `decoding.generate.generate`.
    """
    tokens = prompt
    total = prompt.shape[1] + n_new
    start = 0
    while tokens.shape[1] < total:
        # The window in which the evaluation would score the next token.
        while tokens.shape[1] >= start + length:
            start += length - overlap
        before = tokens[:, :start]
        n_known = tokens.shape[1] - start

        def counted(step: int, _: int, done: int = tokens.shape[1] - prompt.shape[1]) -> None:
            """Count over all windows."""
            if progress is not None:
                progress(done + step, n_new)

        sampled = generation.generate(
            model,
            batch=len(tokens),
            length=min(length, total - start),
            prefix=tokens[:, start:],
            previous=before[:, -1] if start else None,
            end=end,
            constraint=_after(before, constraint),
            condition=NO_CONDITION if condition is None else condition(before),
            progress=counted,
            **options,
        )
        if end is not None and tokens.shape[1]:
            # A window without overlap does not show that a row has ended.
            ended = tokens[:, -1:] == end  # [B, 1]
            sampled[:, n_known:] = sampled[:, n_known:].masked_fill(ended, end)
        tokens = torch.cat([before, sampled], dim=1)
        if end is not None and bool((tokens[:, -1] == end).all()):
            if progress is not None:
                n_sampled = int((tokens != end).any(0).sum()) + 1 - prompt.shape[1]
                progress(n_sampled, n_sampled)
            break
    return tokens


def complete_tokens(
    model: DecoderOnly,
    given: Given,
    *,
    length: int,
    overlap: int,
    particles: int,
    passes: int = 0,
    temperature: float = 1.0,
    constraint: LogitsConstraint | None = None,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Sample the unknown tokens of pieces given the known ones: int64 [B, L].

    In each window the unknown tokens are drawn by `particle_filter`, so that known tokens later in
    the window count too, and then again by `passes` of `resample`. length, overlap: of the windows,
    in tokens. constraint: on the unknown tokens, a function of all tokens so far; not with passes
    (ValueError). progress: called with (tokens drawn, L).
    """
    if passes and constraint is not None:
        raise ValueError("resampling does not take a constraint")
    values, known = given.values.clone(), given.known.clone()
    total = values.shape[1]
    for start in window_starts(total, length=length, overlap=overlap):
        stop = min(start + length, total)
        n_prefix = overlap if start else 0
        window = Given(values[:, start:stop], known[:, start:stop])
        before = values[:, :start].repeat_interleave(particles, 0)  # [B n, start]

        def counted(done: int, _: int, first: int = start + n_prefix) -> None:
            """Count over all windows."""
            if progress is not None:
                progress(first + done, total)

        common: dict[str, Any] = {
            "temperature": temperature,
            "generator": generator,
            "previous": values[:, start - 1] if start else None,
        }
        drawn, _ = particle_filter(
            model,
            window,
            particles=particles,
            n_prefix=n_prefix,
            constraint=_after(before, constraint),
            progress=counted,
            **common,
        )
        if passes:
            drawn, _ = resample(model, Given(drawn, window.known), passes=passes, **common)
        values[:, start:stop], known[:, start:stop] = drawn, True
    return values


def _after(before: Tensor, constraint: LogitsConstraint | None) -> LogitsConstraint | None:
    """Return the constraint on a window that follows tokens int64 [B, t]; None for none.

    It reads all tokens, because a note of an earlier window may still sound.
    """
    if constraint is None:
        return None
    return lambda values: constraint(torch.cat([before, values], dim=1))
