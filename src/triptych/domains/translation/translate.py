"""Translation of lines of text: n lines in, n lines out.

The translation of a line does not depend on the other lines: padding is masked, each row has its
own length limit and length penalty, and beam search decides row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.decoding.beam_search import beam_search
from triptych.decoding.hypotheses import Hypothesis, LengthPenalty, SearchResult
from triptych.domains.translation.data import pad_rows
from triptych.domains.translation.sources import SPACES
from triptych.domains.translation.tokenizer import END, PAD, START, Tokenizers
from triptych.training.evaluate import device_of, scoring
from triptych.types import Progress

FORBIDDEN = (PAD, START)
"""Tokens that no translation contains."""
EXTRA_TOKENS = 50
"""Maximum number of tokens of a translation beyond its source's (1706.03762, section 6.1)."""
MAX_POSITIONS = 8_192
"""Maximum number of source and target positions of a batch, before beams; bounds the memory of long
lines."""
SAFE_MARGIN = 3e-5
"""Margin in nats per token from which a search in single precision agrees with one in double
precision. The log p of a translation differs between the two by at most about 2e-6 per token, and a
margin by at most about 1e-5."""


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
    """Return the n best hypotheses of each line, best first; none for a blank line.

    exact: returns the model in double precision; lines whose search has a margin below
    `SAFE_MARGIN` are searched again with it. progress: called with (lines done, lines in all).
    """
    cleaned = [line.strip(SPACES) for line in lines]
    filled = [index for index, line in enumerate(cleaned) if line and not line.isspace()]
    sources = [[*ids, END] for ids in tokenizers.source.encode_batch([cleaned[i] for i in filled])]
    found: list[list[Hypothesis]] = [[] for _ in lines]
    done = len(lines) - len(filled)

    def run(searching: EncoderDecoder, chosen: Sequence[int], min_margin: float) -> list[int]:
        """Search these sources; return those below the margin, whose results are discarded."""
        nonlocal done
        doubtful = []
        for batch in plan_rows([len(sources[row]) for row in chosen], batch_size):
            rows = [chosen[index] for index in batch]
            results = search_batch(
                searching, [sources[row] for row in rows], beam=beam, n_best=n_best, penalty=penalty
            )
            for row, result in zip(rows, results, strict=True):
                if result.margin < min_margin:
                    doubtful.append(row)
                    continue
                found[filled[row]] = result.best
                done += 1
            if progress is not None:
                progress(done, len(lines))
        return doubtful

    doubtful = run(model, range(len(sources)), -torch.inf if exact is None else SAFE_MARGIN)
    if doubtful and exact is not None:
        run(exact(), doubtful, -torch.inf)
    return found


def plan_rows(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Group rows into batches of similar length, longest first.

    lengths: source tokens of each row. A batch has at most batch_size rows and, if it has more than
    one, at most `MAX_POSITIONS` positions, its translations included.
    """
    batches: list[list[int]] = []
    capacity = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not batches or len(batches[-1]) >= capacity:
            batches.append([])
            positions = 2 * lengths[row] + EXTRA_TOKENS
            capacity = min(batch_size, max(1, MAX_POSITIONS // positions))
        batches[-1].append(row)
    return batches


def search_batch(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    *,
    beam: int,
    n_best: int,
    penalty: LengthPenalty | None,
) -> list[SearchResult]:
    """Search the translations of sources (their ids and END) as one batch."""
    source = pad_rows(sources).to(device_of(model))  # [B, S]
    padding = source == PAD  # [B, S]
    limits = (~padding).sum(1) + EXTRA_TOKENS  # [B]
    with scoring(model):
        memory = model.encode(source, padding)  # [B, S, D]
        cache = model.init_cache(len(sources), int(limits.max()), condition=memory, padding=padding)
        return beam_search(
            model,
            cache,
            beam=beam,
            start=START,
            end=END,
            max_lengths=limits,
            penalty=penalty,
            n_best=n_best,
            forbidden=FORBIDDEN,
        )


def hypothesis_texts(
    tokenizers: Tokenizers, found: Sequence[Sequence[Hypothesis]], *, n_best: int = 1
) -> list[list[str]]:
    """Return the text of each hypothesis as one line; n_best empty texts for a row without any.

    found: the hypotheses of each line, as `search_lines` returns them.
    """
    rows = [hypothesis.tokens for best in found for hypothesis in best]
    decoded = iter(tokenizers.target.decode_batch(rows))
    return [[one_line(next(decoded)) for _ in best] or [""] * n_best for best in found]


def one_line(text: str) -> str:
    """Return the text with a space in place of every line end."""
    return text.replace("\r", " ").replace("\n", " ")
