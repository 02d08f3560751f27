"""Lines of text through the model and back: n lines in, n lines out, each by itself.

What a line becomes does not depend on its neighbours: padding is masked, every row has its own
length limit and its own penalty, and the search decides row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.decoding.beam_search import beam_search
from triptych.decoding.hypotheses import Hypothesis, LengthPenalty, SearchResult
from triptych.domains.translation.data import pad_rows
from triptych.domains.translation.lines import BLANKS
from triptych.domains.translation.tokenizer import END, PAD, START, Tokenizers

NEVER = (PAD, START)
"""Tokens that no translation holds."""
EXTRA_TOKENS = 50
"""A translation has at most this many tokens more than its source (1706.03762, section 6.1)."""
MOST_POSITIONS = 8_192
"""Most source and target positions of one batch before beams: a few long lines fill memory as
many short ones do."""
SAFE_MARGIN = 3e-5
"""Nats per token: a search in single precision whose closest decision had at least this margin
found what double precision finds. Over 3 models, 1,000 lines each, and beams of 1 and 4 the log p
of a translation differed between the two by at most 1.6e-6 a token, and a margin by at most 8e-6;
of captions 0.4 % (greedy) and 2 % (beam of 4) came closer."""

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


def search_lines(
    model: EncoderDecoder,
    tokenizers: Tokenizers,
    lines: Sequence[str],
    *,
    beam: int = 4,
    n_best: int = 1,
    batch_size: int = 64,
    penalty: LengthPenalty | None = None,
    exact: Callable[[], EncoderDecoder] | None = None,
    progress: Progress | None = None,
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each line, best first; none for a blank line.

    exact: gives the same model in double precision, asked for where some line's search was closer
    than SAFE_MARGIN: these lines are searched again with it, all together.
    The model is put into eval mode and back. progress: called with (lines done, lines in all).
    """
    cleaned = [line.strip(BLANKS) for line in lines]
    found: list[list[Hypothesis]] = [[] for _ in lines]
    filled = [place for place, line in enumerate(cleaned) if not line.isspace() and line]
    sources = [[*ids, END] for ids in tokenizers.source.encode_batch([cleaned[i] for i in filled])]
    done = len(lines) - len(filled)

    def run(searching: EncoderDecoder, chosen: Sequence[int], margin: float) -> list[int]:
        """Search these sources; those whose margin is smaller are not taken but returned."""
        nonlocal done
        doubtful = []
        for batch in plan_rows([len(sources[row]) for row in chosen], batch_size):
            rows = [chosen[place] for place in batch]
            outcomes = search(
                searching, [sources[row] for row in rows], beam=beam, n_best=n_best, penalty=penalty
            )
            for row, outcome in zip(rows, outcomes, strict=True):
                if outcome.margin < margin:
                    doubtful.append(row)
                    continue
                found[filled[row]] = outcome.best
                done += 1
            if progress is not None:
                progress(done, len(lines))
        return doubtful

    training = model.training
    model.eval()
    try:
        doubtful = run(model, range(len(sources)), -torch.inf if exact is None else SAFE_MARGIN)
        if doubtful and exact is not None:
            run(exact().eval(), doubtful, -torch.inf)
    finally:
        model.train(training)
    return found


def translate_lines(
    model: EncoderDecoder,
    tokenizers: Tokenizers,
    lines: Sequence[str],
    *,
    n_best: int = 1,
    **options: Any,
) -> list[list[str]]:
    """The n best translations of each line, best first; n_best empty ones for a blank line.

    options: those of `search_lines`.
    """
    found = search_lines(model, tokenizers, lines, n_best=n_best, **options)
    return texts(tokenizers, found, n_best=n_best)


def texts(
    tokenizers: Tokenizers, found: Sequence[Sequence[Hypothesis]], *, n_best: int
) -> list[list[str]]:
    """What the hypotheses say, each in one line; n_best empty texts where there are none."""
    decoded = iter(
        tokenizers.target.decode_batch([hypothesis.tokens for best in found for hypothesis in best])
    )
    return [[one_line(next(decoded)) for _ in best] or [""] * n_best for best in found]


@torch.no_grad()
def search(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    *,
    beam: int,
    n_best: int,
    penalty: LengthPenalty | None,
) -> list[SearchResult]:
    """Search the translations of each source (its ids and END) as one batch."""
    source = pad_rows(sources).to(next(model.parameters()).device)  # [B, S]
    padding = source == PAD  # [B, S]
    limits = (~padding).sum(1) + EXTRA_TOKENS  # [B]
    memory = model.encode(source, padding)  # [B, S, D]
    state = model.init_cache(memory, padding, int(limits.max()))
    return beam_search(
        model.step,
        state,
        beam=beam,
        start=START,
        end=END,
        max_lengths=limits,
        penalty=penalty,
        n_best=n_best,
        forbidden=NEVER,
        cache_view=model.narrow,
    )


def one_line(text: str) -> str:
    """The text with a blank for every line end: what comes from one line goes into one line."""
    return text.replace("\r", " ").replace("\n", " ")
