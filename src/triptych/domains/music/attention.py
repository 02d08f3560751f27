"""Attention weights with which a music model predicts one note.

Position t of the model predicts token t. Key j holds token j - 1; key 0 holds the token before the
window, or the start vector at the start of a piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.attention.cross import capture_attention
from triptych.core.models.base import NO_CONDITION
from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.music.data import NO_PREVIOUS
from triptych.domains.music.model import MusicSettings
from triptych.domains.music.notes import Ids, Score
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.errors import UserError
from triptych.files.drawing import GREY, new_figure, png
from triptych.files.piano_roll import label_pitches
from triptych.training.engine.devices import scoring

ARC, NOTE, QUERY = "#33589c", "#c9ccd1", "#c8443c"
MAX_ARCS = 60
MIN_ARC = 0.02
"""Smallest weight of an arc, as a share of the largest one."""
MAX_COLUMNS = 160
"""Largest number of columns in the drawing of the heads; longer pieces are divided evenly."""


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
    starts = tokenizer.seconds(tokens)
    notes = np.flatnonzero(tokenizer.onsets(tokens) & (tokenizer.pitches(tokens) >= 0))
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


def note_attention(
    model: DecoderOnly,
    settings: MusicSettings,
    tokens: Ids,
    query: int,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> MusicAttention:
    """Return the attention weights for the token `query` of a piece, in a window that ends with it.

    layer: from 1, None for the last. head: from 1, None for the mean of all heads.
    """
    tokenizer = settings.tokenizer
    layer = layer or settings.model.transformer.n_layers
    first = -(-max(0, query + 1 - settings.sequence_length) // tokenizer.bar) * tokenizer.bar
    device = model.start.device
    values = torch.from_numpy(tokens[first : query + 1]).to(device).unsqueeze(0)  # [1, L]
    previous = torch.tensor([tokens[first - 1] if first else NO_PREVIOUS], device=device)
    block, number = model.decoder.block_of(layer)
    with scoring(model), capture_attention(block) as captured:
        condition = NO_CONDITION
        if (reader := settings.window_melody) is not None:
            before = torch.from_numpy(tokens[:first]).to(device).unsqueeze(0)  # [1, first]
            condition = reader.condition(model, reader.tokenizer.melody(tokens), before)
        model(values, previous, condition)
    heads = captured.self_attention[number][0, :, -1, 1:]  # [H, L - 1]
    return MusicAttention(
        layer=layer,
        head=head,
        tokens=tokens,
        query=query,
        first=first,
        seconds=tokenizer.seconds(tokens[: query + 1])[first:],
        pitches=tokenizer.pitches(tokens[: query + 1])[first:],
        heads=heads.cpu().double().numpy(),
    )


def attention_png(found: MusicAttention, score: Score) -> bytes:
    """Draw attention weights: arcs over the piano roll above, one row per head over time below.

    An arc is darker and wider for a larger weight. The red note is the predicted one.
    """
    from matplotlib.patches import FancyArrowPatch

    figure = new_figure(10, 6)
    roll, rows = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
    start, here = found.seconds[0], found.seconds[-1]
    end = here + max(0.06 * (here - start), 0.3)  # room for arcs to notes of the same instant

    sounding = found.pitches[found.pitches >= 0]
    low, high = sounding.min() - 3, sounding.max() + 3
    thickness = min(5.0, 220 / (high - low))  # points: notes a semitone apart do not touch
    for pitch, onset, stop in score.notes_in_seconds.pitched.rows("pitch", "onset", "release"):
        if stop > start and onset < end:
            roll.hlines(pitch, onset, min(stop, end), color=NOTE, linewidth=thickness)
    target = (here, found.pitches[-1])
    weights = found.weights
    largest = max(float(weights.max(initial=0.0)), 1e-9)
    for token in np.argsort(weights)[::-1][:MAX_ARCS]:
        share = weights[token] / largest
        if found.pitches[token] < 0 or share < MIN_ARC:
            continue
        source = (found.seconds[token], found.pitches[token])
        alpha = 0.1 + 0.9 * share
        arc = FancyArrowPatch(
            target, source, arrowstyle="-", connectionstyle="arc3,rad=0.2", color=ARC,
            alpha=alpha, linewidth=0.4 + 2.6 * share, shrinkA=0, shrinkB=0, zorder=3,
        )  # fmt: skip
        roll.add_patch(arc)
        roll.plot(*source, "o", color=ARC, alpha=alpha, markersize=2 + 3 * share, zorder=3)
    roll.plot(*target, "o", color=QUERY, markersize=7, zorder=4)
    label_pitches(roll, low, high)
    head = "mean of all heads" if found.head is None else f"head {found.head}"
    title = f"layer {found.layer}, {head}: attention weights for the red note"
    roll.set_title(title, fontsize=9, color=GREY, loc="left")

    edges = np.append(np.unique(found.seconds), end)  # a column from each time to the next
    if len(edges) > MAX_COLUMNS + 1:
        edges = np.linspace(start, end, MAX_COLUMNS + 1)
    shares = [np.histogram(found.seconds[:-1], edges, weights=head)[0] for head in found.heads]
    mesh = rows.pcolormesh(edges, np.arange(len(shares) + 1) + 0.5, shares, cmap="Blues", vmin=0)
    rows.set_yticks(np.arange(1, len(shares) + 1))
    rows.invert_yaxis()
    rows.set_ylabel("head")
    rows.set_xlabel("seconds")
    rows.set_xlim(start, end)
    figure.colorbar(mesh, ax=rows, label="attention weight", pad=0.01)
    return png(figure)
