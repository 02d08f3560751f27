"""Search for the translations of encoded sentences, in batches of similar length.

A translation does not depend on the other sentences of its batch: padding is masked, each row has
its own length limit and length penalty, and beam search decides row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.decoding.beam_search import beam_search
from triptych.decoding.hypotheses import LengthPenalty, SearchResult
from triptych.domains.translation.data import pad_rows
from triptych.domains.translation.tokenizer import END, PAD, START
from triptych.training.evaluate import device_of, scoring

FORBIDDEN = (PAD, START)
"""Tokens that no translation contains."""
EXTRA_TOKENS = 50
"""Maximum number of tokens of a translation beyond its source's (1706.03762, section 6.1)."""
MAX_POSITIONS = 8_192
"""Maximum number of source and target positions of a batch, before beams; bounds the memory of long
lines."""


def search_sources(
    model: EncoderDecoder,
    sources: Mapping[int, Sequence[int]],
    *,
    batch_size: int,
    beam: int,
    n_best: int,
    penalty: LengthPenalty,
) -> Iterator[tuple[int, SearchResult]]:
    """Yield the key and the result of each source (its ids and END), the longest first."""
    lengths = {key: len(source) for key, source in sources.items()}
    for keys in plan_rows(lengths, batch_size):
        source = pad_rows([sources[key] for key in keys]).to(device_of(model))  # [B, S]
        padding = source == PAD  # [B, S]
        limits = [len(sources[key]) + EXTRA_TOKENS for key in keys]
        with scoring(model):
            memory = model.encode(source, padding)  # [B, S, D]
            cache = model.init_cache(len(keys), max(limits), condition=memory, padding=padding)
            results = beam_search(
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
        yield from zip(keys, results, strict=True)


def plan_rows(lengths: Mapping[int, int], batch_size: int) -> list[list[int]]:
    """Group the keys of rows into batches of similar length, longest first.

    lengths: source tokens of each row. A batch has at most batch_size rows and, if it has more than
    one, at most `MAX_POSITIONS` positions, its translations included.
    """
    batches: list[list[int]] = []
    capacity = 0
    for key in sorted(lengths, key=lambda key: -lengths[key]):
        if not batches or len(batches[-1]) >= capacity:
            batches.append([])
            positions = 2 * lengths[key] + EXTRA_TOKENS
            capacity = min(batch_size, MAX_POSITIONS // positions)
        batches[-1].append(key)
    return batches


def one_line(text: str) -> str:
    """Return the text with a space in place of every line end."""
    return text.replace("\r", " ").replace("\n", " ")
