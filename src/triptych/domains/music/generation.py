"""Sampling of pieces of any length from a model with a window.

When the window is full it moves as the windows of the evaluation do: the next one starts
sequence_length - overlap tokens later, reads its first `overlap` tokens as a prompt with the token
before them, and continues. So every token is sampled with the context with which it would be
scored.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from triptych.core.models.base import NO_CONDITION
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding import generate as generation
from triptych.decoding.constraints import ByPriority
from triptych.decoding.generate import on_model
from triptych.decoding.given import particle_filter
from triptych.decoding.sampling import Draft, Given, LogitsConstraint, SampleRequest, part_of
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.tokenizers.base import FillPart, Prompt
from triptych.training.engine.devices import device_of

MAX_DRAFTED_ROWS = 4
"""Largest number of pieces sampled with drafts; all rows wait for the worst draft."""
MIN_FILLED = 256
"""Least number of tokens beyond a prompt that a part which is made anew may have."""


def sample_pieces(
    model: DecoderOnly,
    settings: MusicSettings,
    request: SampleRequest,
    *,
    seconds: float | None = None,
    length: int | None = None,
    prompt: Prompt | None = None,
    constraints: Sequence[LogitsConstraint] = (),
    melody: Ids | None = None,
) -> list[Ids]:
    """Sample `count` pieces as tokens, each beginning with the prompt; END after the end of one.

    seconds or length: of new music, see `MusicSampleOptions`. constraints: rules after the
    tokenizer's own, for `ByPriority`. melody: of the whole piece, for a model with an encoder.
    """
    tokenizer, count = settings.tokenizer, request.count
    device = device_of(model)
    # A voice holds its pitch for most steps; a draft of that is faster for few pieces.
    few = count <= MAX_DRAFTED_ROWS and device.type == "cpu" and not request.compile
    draft = Draft(len(tokenizer.voice_ranges)) if tokenizer.voice_ranges and few else None
    first, start = (np.zeros(0, dtype=np.int64), 0) if prompt is None else prompt
    grammar = tokenizer.grammar(count, seconds=seconds, n_prompt=len(first), start=start)
    rules = [*constraints] if grammar is None else [grammar, *constraints]
    request = replace(
        request,
        prefix=torch.from_numpy(first).to(device).expand(count, -1),
        length=len(first) + tokenizer.n_tokens(seconds=seconds, length=length),
        end=tokenizer.end,
        constraint=ByPriority(rules) if rules else None,
        draft=draft,
    )
    rows = continue_tokens(model, request, settings, melody).cpu().numpy()
    return [tokenizer.trim(row, seconds=seconds, n_prompt=len(first)) for row in rows]


def fill_part(
    model: DecoderOnly,
    settings: MusicSettings,
    request: SampleRequest,
    constraints: Sequence[LogitsConstraint],
    part: FillPart,
) -> Ids:
    """Sample the ids that follow the prompt of a part that is made anew, END included."""
    prompt = torch.from_numpy(part.prompt).to(device_of(model))
    request = replace(
        request,
        prefix=prompt.unsqueeze(0),
        length=max(settings.sequence_length, len(prompt) + 2 * len(part.answer) + MIN_FILLED),
        end=settings.tokenizer.end,
        constraint=ByPriority([part.grammar(len(prompt)), *constraints]),
    )
    ids = continue_tokens(model, request, settings)[0].cpu().numpy()
    return ids[len(prompt) :]


def continue_tokens(
    model: DecoderOnly, request: SampleRequest, settings: MusicSettings, melody: Ids | None = None
) -> Tensor:
    """Continue the prefix, int64 [B, P] with P from 0, to `length` tokens at most: [B, length].

    A row that samples `end` is filled with it; stops when all rows have. The constraint is called
    with all tokens from the first one of the prefix on. settings, melody: as in `sample_pieces`.
    The progress counts new tokens; where all rows ended earlier the last call is (new tokens, new
    tokens).
    """
    request = on_model(model, request)
    assert request.prefix is not None
    tokens, total, end = request.prefix, request.length, request.end
    n_prompt, start, reader = tokens.shape[1], 0, settings.window_melody
    while tokens.shape[1] < total:
        # The window in which the evaluation would score the next token.
        while tokens.shape[1] >= start + settings.sequence_length:
            start += settings.sequence_length - settings.overlap
        before = tokens[:, :start]
        n_known = tokens.shape[1] - start
        condition = NO_CONDITION
        if melody is not None and reader is not None:
            condition = reader.condition(model, melody, before)
        part = replace(
            request,
            count=len(tokens),
            length=min(settings.sequence_length, total - start),
            prefix=tokens[:, start:],
            previous=before[:, -1] if start else None,
            constraint=_after(before, request.constraint),
            condition=condition,
            progress=part_of(request.progress, tokens.shape[1] - n_prompt, total - n_prompt),
        )
        sampled = generation.generate(model, part)
        if end is not None and tokens.shape[1]:
            # A window without overlap does not show that a row has ended.
            ended = tokens[:, -1:] == end  # [B, 1]
            sampled[:, n_known:] = sampled[:, n_known:].masked_fill(ended, end)
        tokens = torch.cat([before, sampled], dim=1)
        if end is not None and bool((tokens[:, -1] == end).all()):
            if request.progress is not None:
                n_sampled = int((tokens != end).any(0).sum()) + 1 - n_prompt
                request.progress(n_sampled, n_sampled)
            break
    return tokens


def complete_tokens(
    model: DecoderOnly, request: SampleRequest, settings: MusicSettings, *, particles: int
) -> Tensor:
    """Sample the unknown tokens of pieces given the known ones: int64 [B, L].

    In each window the unknown tokens are drawn by `particle_filter`, so that known tokens later in
    the window count too. The constraint is on the unknown tokens, a function of all tokens so far.
    progress: called with (tokens drawn, L).
    """
    request = on_model(model, request)
    assert request.given is not None
    values, known = request.given.values.clone(), request.given.known.clone()
    total = values.shape[1]
    for start in settings.window_starts(total):
        stop = min(start + settings.sequence_length, total)
        n_prefix = settings.overlap if start else 0
        before = values[:, :start].repeat_interleave(particles, 0)  # [B n, start]
        part = replace(
            request,
            given=Given(values[:, start:stop], known[:, start:stop]),
            previous=values[:, start - 1] if start else None,
            constraint=_after(before, request.constraint),
            progress=part_of(request.progress, start + n_prefix, total),
        )
        drawn, _ = particle_filter(model, part, particles=particles, n_prefix=n_prefix)
        values[:, start:stop], known[:, start:stop] = drawn, True
    return values


def _after(before: Tensor, constraint: LogitsConstraint | None) -> LogitsConstraint | None:
    """Return the constraint on a window that follows tokens int64 [B, t]; None for none."""
    if constraint is None:
        return None
    # It reads all tokens, because a note of an earlier window may still sound.
    return lambda values: constraint(torch.cat([before, values], dim=1))
