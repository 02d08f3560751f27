"""What a translation reads: the weights of attention between the pieces of two sentences.

A translation is searched first and then run once more as a whole: the query of a row is the
position that predicts the row's piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.core.attention.capture import capture_attention
from triptych.decoding.hypotheses import Hypothesis
from triptych.domains.translation.decode import one_line, search_lines
from triptych.domains.translation.inference import Translator
from triptych.domains.translation.lines import BLANKS
from triptych.domains.translation.tokenizer import END, START, BytePairTokenizer
from triptych.training.attended import check_layer_and_head
from triptych.training.evaluate import scoring

BLANK = "·"
"""Stands for a blank in a piece, which would not be seen."""
END_NAME = "<end>"


@dataclass(frozen=True)
class Attended:
    """One sentence, its translation, and what was read for each piece; rows add up to 1."""

    source: str
    translation: str
    layer: int
    """From 1."""
    head: int | None
    """From 1; None for the mean of all heads."""
    source_pieces: list[str]
    target_pieces: list[str]
    cross: list[list[float]]
    """By target piece, what was read of each source piece."""
    encoder: list[list[float]]
    """By source piece, what the encoder's layer of the same number read of each source piece."""


def attend_lines(
    translator: Translator,
    lines: Sequence[str],
    *,
    beam: int = 4,
    layer: int | None = None,
    head: int | None = None,
) -> Iterator[Attended | None]:
    """Translate each line and tell what was read; None for a blank line.

    beam: hypotheses kept, 1 for greedy. layer: from 1, one that encoder and decoder both have, None
    for the last of each. head: from 1, None for the mean of all heads. Raises UserError where there
    is no such one.
    """
    model = translator.task.model
    both = min(len(model.encoder.blocks), len(model.decoder.blocks))
    n_heads = translator.config.model.transformer.n_heads
    check_layer_and_head(layer, head, n_layers=both, n_heads=n_heads)
    exact = (lambda: translator.double) if translator.exact else None
    found = search_lines(
        translator.model,
        translator.task.tokenizers,
        lines,
        beam=beam,
        exact=exact,
    )
    for line, best in zip(lines, found, strict=True):
        yield _attended(translator, line.strip(BLANKS), best[0], layer, head) if best else None


def _attended(
    translator: Translator, line: str, best: Hypothesis, layer: int | None, head: int | None
) -> Attended:
    task = translator.task
    tokenizers, model, device = task.tokenizers, task.model, task.device
    source = [*tokenizers.source.encode(line), END]
    target = [*best.tokens, END] if best.finished else best.tokens
    number = len(model.decoder.blocks) if layer is None else layer
    encoder_block = model.encoder.blocks[-1 if layer is None else layer - 1]
    decoder_block = model.decoder.blocks[number - 1]
    with (
        scoring(task),
        capture_attention(encoder_block) as reading,
        capture_attention(decoder_block) as writing,
    ):
        model(
            torch.tensor([source], device=device),
            None,
            torch.tensor([[START, *target[:-1]]], device=device),
        )
    source_runs, source_pieces = pieces(tokenizers.source, source)
    target_runs, target_pieces = pieces(tokenizers.target, target)

    def chosen(weights: Tensor, rows: list[int], columns: list[int]) -> list[list[float]]:
        of_one = weights[0].cpu().double()  # [H, Q, K]
        plane = of_one.mean(0) if head is None else of_one[head - 1]  # [Q, K]
        return by_piece(plane, rows, columns).tolist()

    return Attended(
        source=line,
        translation=one_line(tokenizers.target.decode(best.tokens)),
        layer=number,
        head=head,
        source_pieces=source_pieces,
        target_pieces=target_pieces,
        cross=chosen(writing.cross[0], target_runs, source_runs),
        encoder=chosen(reading.own[0], source_runs, source_runs),
    )


def pieces(tokenizer: BytePairTokenizer, ids: Sequence[int]) -> tuple[list[int], list[str]]:
    """How many ids each piece has, and how it reads.

    A piece is one id, or as many as make whole characters: the ids are cut between bytes, and a
    character of Korean or Chinese may be in several. Bytes that make no text stand alone.
    """
    runs: list[int] = []
    names: list[str] = []
    start = 0
    while start < len(ids):
        size, name = 1, END_NAME
        if ids[start] != END:
            texts = (tokenizer.decode(ids[start:stop]) for stop in range(start + 1, len(ids) + 1))
            whole = enumerate(texts, start=1)
            size, name = next(
                ((n, text) for n, text in whole if "\ufffd" not in text), (1, "\ufffd")
            )
        runs.append(size)
        names.append(one_line(name).replace(" ", BLANK))
        start += size
    return runs, names


def by_piece(weights: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """From ids to pieces: [Q, K] -> [len(rows), len(columns)].

    What is read of a piece is the sum over its ids, what a piece reads the mean over its ids, so
    rows that added up to 1 still do.
    """
    read = torch.stack([part.sum(1) for part in weights.split(list(columns), 1)], dim=1)
    return torch.stack([part.mean(0) for part in read.split(list(rows), 0)])
