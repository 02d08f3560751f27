"""Lines of text through the model and back: n lines in, n lines out, each by itself.

What a line becomes does not depend on its neighbours: padding is masked, every row has its own
length limit and its own penalty, and the search decides row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from triptych.core.seq2seq import Seq2Seq
from triptych.decoding.beam import LengthPenalty, beam_search
from triptych.domains.translation.data import pad_rows
from triptych.domains.translation.lines import BLANKS
from triptych.domains.translation.tokenizer import END, PAD, START, Tokenizers

EXTRA_TOKENS = 50
"""A translation has at most this many tokens more than its source (1706.03762, section 6.1)."""
MOST_POSITIONS = 8_192
"""Most source and target positions of one batch before beams: a few long lines fill memory as
many short ones do."""

Progress = Callable[[int, int], None]


def plan_rows(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Cut rows into batches of like length, longest first.

    lengths: source tokens of each row. A batch has at most batch_size rows and, where it has more
    than one, at most MOST_POSITIONS positions, the room for its translations included.
    """
    batches: list[list[int]] = []
    room = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not batches or len(batches[-1]) >= room:
            batches.append([])
            room = min(batch_size, max(1, MOST_POSITIONS // (2 * lengths[row] + EXTRA_TOKENS)))
        batches[-1].append(row)
    return batches


def translate_lines(
    model: Seq2Seq,
    tokenizers: Tokenizers,
    lines: Sequence[str],
    *,
    beam: int = 4,
    n_best: int = 1,
    batch_size: int = 64,
    penalty: LengthPenalty | None = None,
    progress: Progress | None = None,
) -> list[list[str]]:
    """The n best translations of each line, best first; n_best empty ones for a blank line.

    The model is put into eval mode and back. progress: called with (lines done, lines in all).
    """
    cleaned = [line.strip(BLANKS) for line in lines]
    found = [[""] * n_best for _ in lines]
    filled = [place for place, line in enumerate(cleaned) if not line.isspace() and line]
    sources = [[*ids, END] for ids in tokenizers.source.encode_batch([cleaned[i] for i in filled])]
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    done = len(lines) - len(filled)
    try:
        for rows in plan_rows([len(source) for source in sources], batch_size):
            tokens = search(
                model,
                [sources[row] for row in rows],
                beam=beam,
                n_best=n_best,
                penalty=penalty,
                device=device,
            )
            for row, best in zip(rows, tokens, strict=True):
                found[filled[row]] = [
                    one_line(text) for text in tokenizers.target.decode_batch(best)
                ]
            done += len(rows)
            if progress is not None:
                progress(done, len(lines))
    finally:
        model.train(training)
    return found


@torch.no_grad()
def search(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    *,
    beam: int,
    n_best: int,
    penalty: LengthPenalty | None,
    device: torch.device,
) -> list[list[list[int]]]:
    """The n best token rows of each source (its ids and END), best first."""
    source = pad_rows(sources).to(device)  # [B, S]
    padding = source == PAD  # [B, S]
    limits = (~padding).sum(1) + EXTRA_TOKENS  # [B]
    memory = model.encode(source, padding)  # [B, S, D]
    state = model.empty_state(memory, padding, int(limits.max()))
    rows = beam_search(
        model.step,
        state,
        beam=beam,
        start=START,
        end=END,
        max_lengths=limits,
        penalty=penalty,
        n_best=n_best,
        forbidden=(PAD, START),
    )
    return [[hypothesis.tokens for hypothesis in best] for best in rows]


def one_line(text: str) -> str:
    """The text with a blank for every line end: what comes from one line goes into one line."""
    return text.replace("\r", " ").replace("\n", " ")
