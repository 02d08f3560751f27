"""Search for and sample the translations of encoded sentences, in batches of similar length.

A translation that was searched does not depend on the other sentences of its batch: padding is
masked, each row has its own length limit and length penalty, and beam search decides row by row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from triptych.core.models.encoder_decoder import SequenceToSequence
from triptych.decoding.beam_search import beam_search
from triptych.decoding.beams import Hypothesis, SearchResult
from triptych.decoding.constraints import AnyForbids, ByPriority, Forbidden
from triptych.decoding.execution import threads_of_steps
from triptych.decoding.generate import generate
from triptych.decoding.penalty import LengthPenalty
from triptych.decoding.sampling import SampleRequest, Sampling
from triptych.domains.translation.constraints import EXTRA_TOKENS, TokenConstraints
from triptych.domains.translation.domain import TranslationRequest
from triptych.domains.translation.model import END, START
from triptych.text.tokenizer import PAD, TextTokenizer
from triptych.training.engine.devices import device_of, scoring

FORBIDDEN = (PAD, START)
"""Tokens that no translation contains."""
MAX_POSITIONS = 8_192
"""Maximum number of source and target positions of a batch, before beams, on other devices than
CUDA; bounds the memory of long lines."""
SEARCH_SHARE = 0.5
"""Share of a GPU's free memory for the positions of a batch; the rest is for a copy and for logits.
"""
SENTENCE_END = re.compile(r"""(?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+|(?<=[。！？])""")
"""Where one sentence ends and the next one begins; white space between them belongs to neither."""


def search_sources(
    model: SequenceToSequence,
    sources: Mapping[int, Sequence[int]],
    request: TranslationRequest,
    constraints: TokenConstraints,
) -> Iterator[tuple[int, SearchResult]]:
    """Yield the key and the result of each source (its ids and END), the longest first."""
    device, beam = device_of(model), request.beam
    required = constraints.required(device)
    n_banks = required.n_banks if required else 1
    for keys, source in _batches(model, sources, max(1, request.batch_size // n_banks), beam=beam):
        limits = [constraints.limit(sources[key]) for key in keys]
        rules = constraints.rules(device)
        with scoring(model), threads_of_steps(model, len(keys) * beam * n_banks):
            condition = model.encode(source, source == PAD)
            state = model.init_state(len(keys), max(limits), condition=condition)
            results = beam_search(
                model,
                state,
                beam=beam,
                start=START,
                end=END,
                max_lengths=limits,
                penalty=LengthPenalty.parse(request.length_penalty),
                n_best=request.n_best,
                forbidden=FORBIDDEN,
                constraint=AnyForbids(rules) if rules else None,
                required=required,
            )
        yield from zip(keys, results, strict=True)


def sample_sources(
    model: SequenceToSequence,
    sources: Mapping[int, Sequence[int]],
    request: TranslationRequest,
    constraints: TokenConstraints,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield the key and one sampled translation of each source, longest first; no scores (nan)."""
    device = device_of(model)
    generator = torch.Generator(device).manual_seed(request.seed)
    forbidden = Forbidden(FORBIDDEN, len(constraints.tokenizer), device)
    for keys, source in _batches(model, sources, request.batch_size, beam=1):
        limits = [constraints.limit(sources[key]) for key in keys]
        rules = [forbidden, *constraints.rules(device)]
        with scoring(model):
            sampled = SampleRequest(
                count=len(keys),
                length=max(limits),
                sampling=Sampling(request.temperature, request.top_k, request.top_p),
                generator=generator,
                previous=torch.full((len(keys),), START, device=device),
                condition=model.encode(source, source == PAD),
                end=END,
                constraint=ByPriority(rules),
            )
            rows = generate(model, sampled)
        for key, row, limit in zip(keys, rows.tolist(), limits, strict=True):
            tokens = row[:limit]
            finished = END in tokens
            tokens = tokens[: tokens.index(END)] if finished else tokens
            yield key, [Hypothesis(tokens, math.nan, math.nan, finished)]


def _batches(
    model: SequenceToSequence, sources: Mapping[int, Sequence[int]], batch_size: int, *, beam: int
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the keys of a batch and its sources int64 [B, K] on the model's device."""
    lengths = {key: len(source) for key, source in sources.items()}
    most, equal = max_positions(model, beam), not model.decodes_padded_sources
    for keys in plan_rows(lengths, batch_size, most, equal_lengths=equal):
        yield keys, pad_rows([sources[key] for key in keys]).to(device_of(model))


def pad_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of ids as one int64 [B, longest], with PAD after the end of each row."""
    padded = [torch.tensor(row, dtype=torch.int64) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(padded, batch_first=True, padding_value=PAD)


def max_positions(model: SequenceToSequence, beam: int) -> int:
    """Most source and target positions of a batch, before beams: from free memory on CUDA."""
    device = device_of(model)
    if device.type != "cuda":
        return MAX_POSITIONS
    free, _ = torch.cuda.mem_get_info(device)
    return int(SEARCH_SHARE * free / (beam * model.bytes_per_position()))


def plan_rows(
    lengths: Mapping[int, int],
    batch_size: int,
    max_positions: int = MAX_POSITIONS,
    *,
    equal_lengths: bool = False,
) -> list[list[int]]:
    """Group the keys of rows into batches of similar length, longest first.

    lengths: source tokens of each row. A batch has at most batch_size rows and, if it has more than
    one, at most `max_positions` positions, its translations included. equal_lengths: all rows of a
    batch have one length.
    """
    batches: list[list[int]] = []
    capacity = 0
    for key in sorted(lengths, key=lambda key: -lengths[key]):
        unequal = equal_lengths and batches and lengths[batches[-1][0]] != lengths[key]
        if not batches or len(batches[-1]) >= capacity or unequal:
            batches.append([])
            positions = 2 * lengths[key] + EXTRA_TOKENS
            capacity = min(batch_size, max_positions // positions)
        batches[-1].append(key)
    return batches


def one_line(text: str) -> str:
    """Return the text with a space in place of every line end."""
    return text.replace("\r", " ").replace("\n", " ")


def split_long(line: str, tokenizer: TextTokenizer, max_tokens: int) -> list[str]:
    """Return the sentences of a line of more than `max_tokens` tokens, or the line alone.

    About a sequence longer than any of its training a model writes little that is useful. A
    sentence that is still too long is halved, at the space nearest to its middle or, in a word, at
    the middle, as often as it is necessary.
    """
    if _fits(line, tokenizer, max_tokens):
        return [line]
    sentences = [sentence for sentence in SENTENCE_END.split(line) if sentence.strip()]
    return [piece for sentence in sentences for piece in _halved(sentence, tokenizer, max_tokens)]


def _fits(text: str, tokenizer: TextTokenizer, max_tokens: int) -> bool:
    # No tokenizer gives more tokens than bytes.
    return len(text.encode()) <= max_tokens or len(tokenizer.encode(text)) <= max_tokens


def _halved(text: str, tokenizer: TextTokenizer, max_tokens: int) -> list[str]:
    """Return the text in parts of at most `max_tokens` tokens each, or of one character."""
    if len(text) < 2 or _fits(text, tokenizer, max_tokens):
        return [text]
    middle = len(text) // 2
    spaces = (
        place for place in (text.rfind(" ", 1, middle), text.find(" ", middle, -1)) if place > 0
    )
    cut = min(spaces, key=lambda place: abs(place - middle), default=middle)
    halves = (text[:cut].strip(" "), text[cut:].strip(" "))
    return [part for half in halves if half for part in _halved(half, tokenizer, max_tokens)]
