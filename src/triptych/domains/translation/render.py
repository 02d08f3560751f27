"""Attention of a translation: weights by pieces of both sentences, and their drawings.

A translation is searched first and then passed through the model once more as a whole: the query of
a row is the position that predicts the row's piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from triptych.core.models.encoder_decoder import SequenceToSequence
from triptych.core.universal import capture_halting, steps_of
from triptych.decoding.beams import Hypothesis
from triptych.domains.translation.lines import one_line
from triptych.domains.translation.model import END, START, Tokenizers
from triptych.files.drawing import (
    cell_grid,
    fonts_of_every_script,
    missing_letters_told,
    new_figure,
    png,
)
from triptych.text.tokenizer import TextTokenizer
from triptych.training.engine.devices import device_of, scoring

EXAMPLES = {
    "en": "A man plays the guitar.",
    "de": "Ein Mann spielt Gitarre.",
    "fr": "Un homme joue de la guitare.",
    "ko": "저는 학생입니다.",
    "zh": "機器學習",
}
"""Example sentences by language (ISO 639-1)."""
SPACE = "·"
"""Visible character for a space in a piece."""
END_NAME = "<end>"
START_NAME = "<start>"
CELL = 0.34
"""Side of a cell in inches."""
MAX_SIDE = 30.0
"""Maximum side of the cells together in inches; longer sentences are scaled down."""


@dataclass(frozen=True)
class SentenceAttention:
    """One sentence, its translation and the attention weights of both.

    Each row adds up to 1; where the source is the beginning of the decoder's own sequence, a target
    piece also reads the target, and its row has the rest.
    """

    source: str
    translation: str
    layer: int
    """Number of the layer, from 1."""
    head: int | None
    """Number of the head, from 1; None for the mean of all heads."""
    source_pieces: list[str]
    target_pieces: list[str]
    cross: list[list[float]]
    """Cross-attention: [target piece][source piece]."""
    encoder: list[list[float]] | None
    """Self-attention of the source in the layer of that number: [source piece][source piece];
    None where the source has none."""
    decoder_pieces: list[str] = field(default_factory=list)
    """Inputs of the decoder: the start, then the target pieces but the last id."""
    decoder: list[list[float]] | None = None
    """Self-attention of the target in that layer: [target piece][input of the decoder]; None where
    the target has none."""
    source_steps: list[float] | None = None
    """Steps of the encoder at each source piece, a mean over its ids; None without halting."""
    target_steps: list[float] | None = None
    """Steps of the decoder at the position that predicts each target piece."""


def sentence_attention(
    model: SequenceToSequence,
    tokenizers: Tokenizers,
    line: str,
    hypothesis: Hypothesis,
    *,
    layer: int | None = None,
    head: int | None = None,
) -> SentenceAttention:
    """Return the weights of a line and its hypothesis; None: the last layer, mean of heads."""
    device = device_of(model)
    source = [*tokenizers.source.encode(line), END]
    target = [*hypothesis.tokens, END] if hypothesis.finished else hypothesis.tokens
    with scoring(model), capture_halting(model) as halting:
        found = model.attention(
            torch.tensor([source], device=device),
            torch.tensor([[START, *target[:-1]]], device=device),
            layer,
        )
    source_runs, source_pieces = pieces(tokenizers.source, source)
    target_runs, target_pieces = pieces(tokenizers.target, target)
    # The last id is no input; a last piece of several ids stays with the others.
    shifted = [1, *target_runs[:-1], *([target_runs[-1] - 1] if target_runs[-1] > 1 else [])]
    shifted_pieces = [START_NAME, *target_pieces][: len(shifted)]

    def by_pieces(
        weights: Tensor | None, queries: list[int], keys: list[int]
    ) -> list[list[float]] | None:
        if weights is None:
            return None
        heads = weights[0].cpu().double()  # [H, Q, K]
        chosen = heads.mean(0) if head is None else heads[head - 1]  # [Q, K]
        rows: list[list[float]] = merge_pieces(chosen, queries, keys).tolist()
        return rows

    def mean_steps(weights: Tensor, runs: list[int]) -> list[float]:
        steps = steps_of(weights[0].cpu()).double()  # [L]
        return [float(part.mean()) for part in steps.split(runs)]

    return SentenceAttention(
        source=line,
        translation=one_line(tokenizers.target.decode(hypothesis.tokens)),
        layer=model.n_layers if layer is None else layer,
        head=head,
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        cross=by_pieces(found.cross, target_runs, source_runs) or [],
        encoder=by_pieces(found.source, source_runs, source_runs),
        decoder_pieces=shifted_pieces,
        decoder=by_pieces(found.target, target_runs, shifted),
        source_steps=mean_steps(halting[0], source_runs) if halting else None,
        target_steps=mean_steps(halting[1], target_runs) if halting else None,
    )


def pieces(tokenizer: TextTokenizer, ids: Sequence[int]) -> tuple[list[int], list[str]]:
    """Return the number of ids of each piece, and its text.

    A piece is one id, or the fewest ids that form whole characters: ids may end inside a character,
    so that one of Korean or Chinese spans several. Bytes that form no text are pieces of their own.
    """
    runs: list[int] = []
    names: list[str] = []
    start = 0
    while start < len(ids):
        size, name = 1, END_NAME
        if ids[start] != END:
            texts = (
                tokenizer.decode_part(ids[start:stop]) for stop in range(start + 1, len(ids) + 1)
            )
            size, name = next(
                ((n, text) for n, text in enumerate(texts, start=1) if "\ufffd" not in text),
                (1, "\ufffd"),
            )
        runs.append(size)
        names.append(one_line(name).replace(" ", SPACE))
        start += size
    return runs, names


def merge_pieces(weights: Tensor, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
    """Return attention weights between pieces: [Q, K] -> [len(queries), len(keys)].

    queries, keys: number of ids of each piece. Weights are summed over the ids of a key and
    averaged over those of a query, so rows that added up to 1 still do.
    """
    summed = torch.stack([part.sum(1) for part in weights.split(list(keys), 1)], dim=1)
    return torch.stack([part.mean(0) for part in summed.split(list(queries), 0)])


def draw(attended: SentenceAttention) -> bytes:
    """Return the cross-attention as PNG; prints the characters that no installed font has."""
    heads = "mean of all heads" if attended.head is None else f"head {attended.head}"
    title = f"cross-attention, layer {attended.layer}, {heads}"
    source, target = attended.source_pieces, attended.target_pieces
    with missing_letters_told():
        return heat_map(
            attended.cross, target, source, title=title, queries="translation", keys="source"
        )


def heat_map(
    weights: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    queries: str = "",
    keys: str = "",
) -> bytes:
    """Return a PNG of attention weights [rows][columns]; queries, keys: labels of the axes."""
    with fonts_of_every_script():
        width, height = (CELL * len(names) for names in (columns, rows))
        scale = min(1.0, MAX_SIDE / max(width, height))
        figure = new_figure(max(4.5, scale * width + 2.2), max(3.0, scale * height + 1.6), title)
        axes = figure.add_subplot()
        highest = max((max(row) for row in weights), default=1.0)
        image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=highest, aspect="equal")
        size = 10 * scale**0.5
        turned: dict[str, Any] = {}
        if max(map(len, columns), default=1) > 2:  # longer names are slanted
            turned = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        axes.set_xticks(range(len(columns)), columns, fontsize=size, **turned)
        axes.set_yticks(range(len(rows)), rows, fontsize=size)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        cell_grid(axes, len(rows), len(columns), colour="#e4e3df", width=0.5)
        axes.tick_params(which="both", length=0)
        axes.set(xlabel=keys, ylabel=queries)
        axes.spines[:].set_visible(False)
        shrink = min(0.8, 2.5 / figure.get_figheight())
        figure.colorbar(image, ax=axes, shrink=shrink, pad=0.02, label="attention weight")
        return png(figure)
