"""Scores of the notes that are sampled, given the notes that are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.given import particle_filter
from triptych.decoding.sampling import Given, SampleRequest
from triptych.domains.music.notes import Ids
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.training.engine.evaluate import in_double
from triptych.types import Progress

PIECES_TOGETHER = 8
"""Pieces of one length that are scored together; constant, so that a seed gives the same scores."""


@torch.no_grad()
def score_given(
    model: DecoderOnly,
    tokenizer: MusicTokenizer,
    pieces: Sequence[Ids],
    kept: Sequence[NDArray[np.bool_]],
    *,
    particles: int,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return nats per note of the free notes, those that are not kept, JSON types only.

    pieces: tokens of each, at most a window of the model. kept: which of them are kept. The keys,
    with s the kept and f the free tokens:

    - forced: -log q(f | s), where q samples each free token given the tokens before it alone: the
      terms of the free tokens in the chain rule of the joint model;
    - given: -log p(f | s) = log p(s) - log p(f, s) of the joint model;
    - alone: -log p(f), the free notes without the kept ones.

    p(s) and p(f) are estimated by `particle_filter`. With few particles `given` is on average too
    low and `alone` too high. On music of the model's own distribution `forced` is not below it.
    progress: called with (tokens scored, tokens).
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for number, ids in enumerate(pieces):
        groups[len(ids)].append(number)
    batches = [
        members[first : first + PIECES_TOGETHER]
        for _, members in sorted(groups.items())
        for first in range(0, len(members), PIECES_TOGETHER)
    ]
    total, done = 2 * sum(map(len, pieces)), 0
    nats = dict.fromkeys(("forced", "given", "alone"), 0.0)
    n_notes = n_tokens = 0
    for batch in batches:
        ids = np.stack([pieces[number] for number in batch])  # [B, L]
        known = np.stack([kept[number] for number in batch])  # [B, L]
        onsets = np.stack([tokenizer.onsets(row) for row in ids])  # [B, L]
        n_notes += int((onsets & ~known).sum())
        n_tokens += int((~known).sum())
        values, given = (torch.from_numpy(part).to(model.start.device) for part in (ids, known))

        def log_p(wanted: Tensor, values: Tensor = values, first: int = done) -> float:
            """Estimate of log p(wanted values) of the whole batch."""

            def counted(step: int, _: int, first: int = first) -> None:
                if progress is not None:
                    progress(first + step * len(values), total)

            request = SampleRequest(
                given=Given(values, wanted), generator=generator, progress=counted
            )
            _, estimates = particle_filter(model, request, particles=particles)
            return float(estimates.sum())

        nll = in_double(model.nll(values))  # [B, L]
        nats["forced"] += float(nll.masked_fill(given, 0.0).sum())
        nats["given"] += log_p(given) + float(nll.sum())
        nats["alone"] -= log_p(~given, first=done + ids.size)
        done += 2 * ids.size
    return {
        "pieces": len(pieces),
        "free_notes": n_notes,
        "free_tokens": n_tokens,
        "nats_per_note": {name: value / max(1, n_notes) for name, value in nats.items()},
    }
