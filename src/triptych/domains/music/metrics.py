"""Scores of music models: nats per token and note, by position, of a part; count models."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from triptych.core.models.base import NO_CONDITION, Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.decoding.ranks import gathered, share, shared_out
from triptych.domains.music.data import Batch
from triptych.domains.music.melody import PADDING
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids, Score
from triptych.domains.music.sources.base import Piece
from triptych.domains.music.tokenizers.base import Cycles, FillPart, FillTask, MusicTokenizer
from triptych.errors import UserError
from triptych.files.splits import warn_of_skipped
from triptych.training.engine.devices import device_of
from triptych.training.engine.evaluate import in_double
from triptych.types import Progress

INITIAL_COUNT = 0.5
"""Initial value of every count: the estimate of Krichevsky and Trofimov (1981)."""


def values_of(batch: Batch) -> Tensor:
    """Return the ids that a model reads and predicts, 0 on padding: int64 [B, L]."""
    # Padding follows the music, where no causal model looks; any id serves as its input.
    return batch.values.masked_fill(batch.values == PADDING, 0)


def condition_of(model: DecoderOnly, batch: Batch) -> Condition:
    """Return what the model makes of a batch's melodies or orders."""
    given = batch.melody if batch.order is None else batch.order
    return NO_CONDITION if given is None else model.condition(given)


def token_nll(model: DecoderOnly, batch: Batch) -> Tensor:
    """Return the negative log-likelihood of each scored token in nats, 0 elsewhere: [B, L]."""
    condition = condition_of(model, batch)
    nll = model.nll(values_of(batch), previous=batch.previous, condition=condition)  # [B, L]
    return nll.masked_fill(~batch.scored, 0.0)


def mean_over_orders(nll: Tensor, n_orders: int, n_voices: int) -> Tensor:
    """Return what the mean over orders of a step's probability gives, a share for each voice.

    nll: of `token_nll`, of each window in all orders, [B n_orders, L] -> [B, L].
    """
    steps = nll.view(-1, n_orders, nll.shape[1] // n_voices, n_voices).sum(-1)  # [B, orders, T]
    mixed = math.log(n_orders) - (-steps).logsumexp(1)  # [B, T]
    return (mixed / n_voices).repeat_interleave(n_voices, dim=1)  # [B, L]


def batch_sums(batch: Batch, nll: Tensor) -> dict[str, Tensor]:
    """Return the sums over a batch of nats, scored tokens and notes; nll [B, L] of `token_nll`."""
    return {
        "nats": in_double(nll).sum(),
        "tokens": in_double(batch.scored.sum()),
        "notes": in_double(batch.onsets.sum()),
    }


class MusicScores:
    """Sums over a batch and their ratios, for the training module and the trained model."""

    domain: ClassVar[str] = "music"
    monitor: str = "nats_per_token"
    model: Any  # DecoderOnly

    def score(self, batch: Batch) -> dict[str, Tensor]:
        return batch_sums(batch, token_nll(self.model, batch))

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        return {
            "nats_per_token": totals["nats"] / totals["tokens"],
            "nats_per_note": totals["nats"] / max(totals["notes"], 1.0),
        }


def mean_by_position(nats: Tensor, tokens: Tensor, edges: Sequence[int]) -> list[dict[str, Any]]:
    """Return nats per token and scored tokens between neighbouring edges, where there are any.

    nats, tokens [L]: sums by position in the window. first, last: positions from 0.
    """
    means = []
    for first, stop in pairwise(edges):
        if n_tokens := int(tokens[first:stop].sum()):
            mean = float(nats[first:stop].sum()) / n_tokens
            bucket = {"first": first, "last": stop - 1}
            means.append({**bucket, "tokens": n_tokens, "nats_per_token": mean})
    return means


def count_models(
    tokenizer: MusicTokenizer, train: Sequence[Ids], held_out: Sequence[Ids]
) -> dict[str, float]:
    """Return nats per token of simple baselines on held-out pieces, by name.

    The uniform model, and where there are training pieces tables of how often a token followed each
    of the tokenizer's `count_contexts` in them. train, held_out: ids of each piece.
    """
    size = tokenizer.vocabulary_size
    nats = {"uniform": math.log(size)}
    for name, (lag, cycles) in tokenizer.count_contexts.items() if len(train) else ():
        n_contexts = (size + 1) * math.prod(modulo for _, modulo in cycles)
        counts = np.full((n_contexts, size), INITIAL_COUNT)
        for tokens in train:
            np.add.at(counts, (_contexts(tokens, size, lag, cycles), tokens), 1)
        totals = counts.sum(1)
        total = 0.0
        for tokens in held_out:
            context = _contexts(tokens, size, lag, cycles)
            total -= float(np.log(counts[context, tokens] / totals[context]).sum())
        nats[name] = total / sum(map(len, held_out))
    return nats


def _contexts(tokens: Ids, size: int, lag: int | None, cycles: Cycles) -> Ids:
    """Return the index of the context of each token."""
    context = np.zeros(len(tokens), dtype=np.int64)
    if lag is not None:
        # `size` stands for the tokens before the piece.
        context = np.concatenate([np.full(lag, size), tokens])[: len(tokens)]
    for divide, modulo in cycles:
        context = context * modulo + np.arange(len(tokens)) // divide % modulo
    return context


@torch.no_grad()
def score_filled(
    model: DecoderOnly, settings: MusicSettings, score: Score, fill: str
) -> dict[str, float]:
    """Return the nats of the notes that `fill` names, by what is known, and their number.

    both_sides: after a prompt of the past and the future, as a model that was trained with
    infilling makes them. past: as the plain continuation of the past, in the same window; all
    notes of the bars, so that the two compare where fill names bars alone. Exact: sums over the
    tokens of the notes, those of positions included.
    """
    tokenizer, window = settings.tokenizer, settings.sequence_length
    sums = dict.fromkeys(("both_sides", "past", "notes"), 0.0)

    def nats(prompt: Ids, ids: Ids) -> float:
        values = np.concatenate([prompt[max(0, len(prompt) + len(ids) - window) :], ids])
        nll = model.nll(torch.from_numpy(values).to(device_of(model)).unsqueeze(0))[0]  # [L]
        own = torch.from_numpy(tokenizer.note_tokens(ids)).to(nll.device)
        return float(in_double(nll[len(values) - len(ids) :])[own].sum())

    def add(part: FillPart) -> Ids:
        sums["both_sides"] += nats(part.prompt, part.answer)
        sums["past"] += nats(part.before, part.plain)
        notes = tokenizer.onsets(part.answer) & tokenizer.note_tokens(part.answer)
        sums["notes"] += float(notes.sum())
        return part.answer

    tokenizer.fill(FillTask(score, None, fill, add, window))
    return sums


def mean_of_filled(
    model: DecoderOnly,
    settings: MusicSettings,
    pieces: Sequence[Piece],
    fill: str,
    progress: Progress,
) -> dict[str, Any]:
    """Return the nats per note over several pieces of `score_filled`, JSON types only.

    Pieces that lack the bars are left out, and a warning counts them; UserError where all do.
    progress: called with (pieces scored, pieces).
    """
    (_, world), tokenizer = share(), settings.tokenizer
    rows, left_out = list[dict[str, float]](), list[str]()
    for number, piece in enumerate(shared_out(dict(enumerate(pieces))).values(), start=1):
        score = replace(tokenizer.to_score(tokenizer.encode(piece.content)), name=piece.name)
        try:
            rows.append(score_filled(model, settings, score, fill))
        except UserError as error:
            left_out.append(str(error))
        progress(min(world * number, len(pieces)), len(pieces))
    rows = [row for part in gathered(rows) for row in part]
    left_out = [reason for part in gathered(left_out) for reason in part]
    if not rows:
        raise UserError(f"no piece can be scored: {left_out[0] if left_out else 'none found'}")
    warn_of_skipped("fill", left_out, len(pieces))
    sums = {name: sum(row[name] for row in rows) for name in rows[0]}
    notes = sums.pop("notes")
    per_note = {name: nats / max(1.0, notes) for name, nats in sums.items()}
    return {"pieces": len(rows), "free_notes": int(notes), "nats_per_note": per_note}
