"""Attention weights with which a music model predicts one note.

Position t of the model predicts token t. Key j holds token j - 1; key 0 holds the token before the
window, or the start vector at the start of a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.attention.capture import capture_attention
from triptych.core.models.base import NO_CONDITION, Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.music.data import NO_PREVIOUS
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError
from triptych.training.engine.evaluate import scoring


@dataclass(frozen=True)
class MusicAttention:
    """Attention weights of one layer for one predicted token, over the tokens of its window."""

    layer: int
    """From 1."""
    head: int | None
    """From 1; None for the mean of all heads."""
    tokens: Ids
    """The whole piece."""
    query: int
    """Index of the predicted token in the piece."""
    first: int
    """Index of the first token in the window."""
    seconds: NDArray[np.float64]
    """Times of the tokens first to query."""
    pitches: Ids
    """MIDI pitches of the tokens first to query, -1 for none."""
    heads: NDArray[np.float64]
    """[H, query - first]: weights of the tokens first to query - 1 by head. What is missing to 1 is
    the weight of key 0."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """Return the weights of the chosen head, or the mean over all heads: [query - first]."""
        chosen = self.heads.mean(0) if self.head is None else self.heads[self.head - 1]
        return np.asarray(chosen)


def find_query(tokenizer: MusicTokenizer, tokens: Ids, seconds: float | None) -> int:
    """Return the token that begins the first note from `seconds` on; None for the last note.

    Drums, which have no pitch, do not count. Raises UserError where no note begins there.
    """
    starts, pitches = tokenizer.seconds_and_pitches(tokens)
    notes = np.flatnonzero(tokenizer.onsets(tokens) & (pitches >= 0))
    if not len(notes):
        raise UserError("the piece has no note; expected one whose prediction can be drawn")
    if seconds is None:
        return int(notes[-1])
    later = notes[starts[notes] >= seconds - 1e-9]
    if not len(later):
        raise UserError(
            f"no note of the piece begins at {seconds:g} s or later; the last one begins at "
            f"{starts[notes[-1]]:.2f} s"
        )
    return int(later[0])


def piece_attention(
    model: DecoderOnly,
    settings: MusicSettings,
    tokens: Ids,
    *,
    at: float | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> MusicAttention:
    """Return the attention weights with which one note of a piece is predicted.

    at: the note is the first one from this time on, in seconds; None for the last one. layer: from
    1, None for the last. head: from 1, None for the mean of all heads. Raises UserError for a note
    that does not exist.
    """
    tokenizer = settings.tokenizer
    query = find_query(tokenizer, tokens, at)
    condition = None
    if (reader := settings.window_melody) is not None:
        condition = partial(reader.condition, model, tokenizer.melody(tokens))
    layer = layer or settings.model.transformer.n_layers
    return note_attention(
        model, settings, tokens, query, layer=layer, head=head, condition=condition
    )


def note_attention(
    model: DecoderOnly,
    settings: MusicSettings,
    tokens: Ids,
    query: int,
    *,
    layer: int,
    head: int | None,
    condition: Callable[[Tensor], Condition] | None = None,
) -> MusicAttention:
    """Compute the attention weights for the token `query` in a window that ends with it.

    layer, head: from 1. condition: called with the tokens before the window, int64 [1, t].
    """
    tokenizer = settings.tokenizer
    first = -(-max(0, query + 1 - settings.sequence_length) // tokenizer.bar) * tokenizer.bar
    device = model.start.device
    values = torch.from_numpy(tokens[first : query + 1]).to(device).unsqueeze(0)  # [1, L]
    previous = torch.tensor([tokens[first - 1] if first else NO_PREVIOUS], device=device)
    block, number = model.decoder.block_of(layer)
    with scoring(model), capture_attention(block) as captured:
        before = torch.from_numpy(tokens[:first]).to(device).unsqueeze(0)  # [1, first]
        model(values, previous, NO_CONDITION if condition is None else condition(before))
    heads = captured.self_attention[number][0, :, -1, 1:]  # [H, L - 1]
    seconds, pitches = tokenizer.seconds_and_pitches(tokens[: query + 1])
    return MusicAttention(
        layer=layer,
        head=head,
        tokens=tokens,
        query=query,
        first=first,
        seconds=seconds[first:],
        pitches=pitches[first:],
        heads=heads.cpu().double().numpy(),
    )
