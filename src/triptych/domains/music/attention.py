"""What a music model reads to predict one token: the weights of attention over the music before.

Position t of the model predicts token t; its keys hold the tokens before, key j token j - 1, and
key 0 what stands before the window: its start vector at the beginning of a piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.attention.capture import capture_attention
from triptych.domains.music.data import NO_PREVIOUS
from triptych.domains.music.midi import read_midi
from triptych.domains.music.representation import Ids
from triptych.domains.music.task import MusicTask
from triptych.errors import UserError
from triptych.training.attended import check_layer_and_head
from triptych.training.evaluate import scoring


@dataclass(frozen=True)
class Attended:
    """One query and the tokens that it reads, in the order of the music."""

    layer: int
    """From 1."""
    head: int | None
    """From 1; None for the mean of all heads."""
    query: int
    """Number of the predicted token in the piece, from 0."""
    first: int
    """Number of the first token that the window shows."""
    seconds: NDArray[np.float64]
    """Of the tokens first .. query."""
    pitch: Ids
    """Of the tokens first .. query, -1 for none."""
    heads: NDArray[np.float64]
    """By head, what is read of the tokens first .. query - 1; what is missing to 1 is read of what
    stands before the window."""

    @property
    def reads(self) -> NDArray[np.float64]:
        """What the chosen head reads, or the mean of all."""
        read: NDArray[np.float64] = (
            self.heads.mean(0) if self.head is None else self.heads[self.head - 1]
        )
        return read


def check(task: MusicTask, *, layer: int | None, head: int | None) -> None:
    """Raise UserError where the model has no such layer or head, counted from 1."""
    settings = task.config.model.transformer
    check_layer_and_head(layer, head, n_layers=settings.n_layers, n_heads=settings.n_heads)


def tokens_of(task: MusicTask, *, primer: Path | None, seconds: float, seed: int) -> Ids:
    """The tokens of a MIDI file, or of so much sampled music; UserError where there is none."""
    kind = task.representation
    if primer is None:
        tokens: Ids = task.draw(1, seconds=seconds, seed=seed)[0].cpu().numpy()
        if kind.end is not None:
            tokens = tokens[tokens != kind.end]  # behind the end stand only ends
    else:
        try:
            tokens = kind.prompt(read_midi(primer), name=str(primer))
        except ValueError as error:
            raise UserError(f"{primer}: {error}") from error
    return tokens


def query_at(task: MusicTask, tokens: Ids, seconds: float | None) -> int:
    """The token that begins the first note from `seconds` on; None for the last note of the piece.

    Raises UserError where no note begins there.
    """
    kind = task.representation
    starts, _ = kind.places(tokens)
    begins = np.flatnonzero(kind.onsets(tokens))
    if not len(begins):
        raise UserError("the piece has no note; expected one to ask about")
    if seconds is not None:
        late = begins[starts[begins] >= seconds - 1e-9]
        if not len(late):
            raise UserError(
                f"no note of the piece begins at {seconds:g} s or later; the last one begins at "
                f"{starts[begins[-1]]:.2f} s"
            )
        begins = late[:1]
    return int(begins[-1])


def attend(
    task: MusicTask,
    tokens: Ids,
    query: int,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> Attended:
    """Read the music before the token `query` as the model does, in its own window.

    layer: from 1, None for the last. head: from 1, None for the mean of all heads. Raises UserError
    where there is no such one.
    """
    check(task, layer=layer, head=head)
    layer = task.config.model.transformer.n_layers if layer is None else layer
    unit, length = task.representation.alignment, task.config.data.length
    first = -(-max(0, query + 1 - length) // unit) * unit
    values = torch.from_numpy(tokens[first : query + 1]).to(task.device).unsqueeze(0)  # [1, L]
    previous = torch.tensor([tokens[first - 1] if first else NO_PREVIOUS], device=task.device)
    with scoring(task), capture_attention(task.model.decoder.blocks[layer - 1]) as found:
        task.model(values, previous)
    heads = found.own[0][0, :, -1, 1:]  # [H, L - 1]
    seconds, pitch = task.representation.places(tokens[: query + 1])
    return Attended(
        layer=layer,
        head=head,
        query=query,
        first=first,
        seconds=seconds[first:],
        pitch=pitch[first:],
        heads=heads.cpu().double().numpy(),
    )
