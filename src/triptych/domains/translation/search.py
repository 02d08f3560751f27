"""Constraints on translations; search and samples of them, in batches of similar length."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from triptych.core.models.encoder_decoder import SequenceToSequence
from triptych.decoding import constraints as rules_of
from triptych.decoding.beam_search import beam_search
from triptych.decoding.beams import Hypothesis, LengthPenalty, SearchResult
from triptych.decoding.execution import threads_of_steps
from triptych.decoding.generate import generate
from triptych.decoding.sampling import LogitsConstraint, SampleRequest
from triptych.domains.translation.domain import TranslationRequest
from triptych.domains.translation.lines import EXTRA_TOKENS, NO_SPACES
from triptych.domains.translation.model import END, START
from triptych.errors import UserError
from triptych.text.tokenizer import PAD, TextTokenizer
from triptych.training.engine.devices import device_of, scoring
from triptych.training.loading.batches import Ragged
from triptych.types import Sampling

FORBIDDEN = (PAD, START)
"""Tokens that no translation contains."""
MAX_POSITIONS = 8_192
"""Maximum number of source and target positions of a batch, before beams, on other devices than
CUDA; bounds the memory of long lines."""
SEARCH_SHARE = 0.5
"""Share of a GPU's free memory for the positions of a batch; the rest is for a copy and for logits.
"""


class TokenConstraints:
    """What a request wants of translations, in tokens of the target, for decoding on any device.

    language: code of the target language. With spaces between words a required phrase begins after
    one, or the translation begins with it. Raises UserError for a prefix and phrases that the
    tokenizer cannot write, that are longer than max_length, or that repeat a run of tokens which
    no_repeat_ngram forbids.
    """

    def __init__(
        self, wanted: TranslationRequest, tokenizer: TextTokenizer, *, language: str
    ) -> None:
        self.wanted, self.tokenizer = wanted, tokenizer
        prefix = wanted.prefix or ""
        self.stem, self.rest = tokenizer.split_last(prefix)
        """First tokens of each translation, and the bytes of the prefix after them."""
        divided = tokenizer.decode_part(self.stem).encode() + self.rest
        if tokenizer.spaced:
            divided = divided.removeprefix(b" ")
        if not tokenizer.knows(prefix) or divided != prefix.encode():
            raise UserError(f"the vocabulary of the model cannot write the prefix {prefix!r}")
        if not self._may_come(self.stem):
            raise self._repeats("prefix", prefix)
        self.phrases = [self._variants(each, language) for each in wanted.phrases]
        """All sequences of tokens that count as each required phrase."""
        self.n_tokens = len(tokenizer.encode(prefix))
        """Tokens of the prefix and of the phrases that are not in it."""
        for phrase, variants in zip(wanted.phrases, self.phrases, strict=True):
            self.n_tokens += 0 if phrase in prefix else min(map(len, variants))
        if wanted.max_length is not None and self.n_tokens > wanted.max_length:
            raise UserError(
                f"the prefix and the required phrases have {self.n_tokens} tokens; expected at "
                f"most max_length, which is {wanted.max_length}"
            )

    def limit(self, source: Sequence[int]) -> int:
        """Return the maximum length of a source's translation in tokens, its end included."""
        if self.wanted.max_length is not None:
            return self.wanted.max_length + 1
        return len(source) + EXTRA_TOKENS + self.n_tokens + self.wanted.min_length

    def rules(self, device: torch.device) -> list[LogitsConstraint]:
        """Return the rules about the next token of a translation."""
        wanted, size = self.wanted, len(self.tokenizer)
        rules: list[LogitsConstraint] = []
        if wanted.prefix is not None:
            rules.append(
                rules_of.ForcedText(self.stem, self.rest, self.tokenizer.token_bytes, device)
            )
        if wanted.min_length or wanted.max_length:
            rules.append(rules_of.Lengths(wanted.min_length, wanted.max_length, END, size, device))
        if wanted.no_repeat_ngram is not None:
            rules.append(rules_of.NoRepeatedNgrams(wanted.no_repeat_ngram, size))
        return rules

    def required(self, device: torch.device) -> rules_of.RequiredPhrases | None:
        """Return the required phrases; None if there are none."""
        return rules_of.RequiredPhrases(self.phrases, device) if self.phrases else None

    def _variants(self, phrase: str, language: str) -> list[list[int]]:
        """Return the sequences of tokens that count as a phrase."""
        text, tokenizer = phrase.strip(), self.tokenizer
        prefixes = {"": []} if language in NO_SPACES else {" ": [], "": [rules_of.BEGIN]}
        known = {space: begin for space, begin in prefixes.items() if tokenizer.knows(space + text)}
        if not known:
            raise UserError(
                f"the vocabulary of the model cannot write the required phrase {phrase!r}"
            )
        every = (begin + tokenizer.encode(space + text) for space, begin in known.items())
        if not (variants := list(filter(self._may_come, every))):
            raise self._repeats("the required phrase", phrase)
        return variants

    def _may_come(self, tokens: Sequence[int]) -> bool:
        """Whether no run of tokens occurs twice that may occur once only."""
        if (n := self.wanted.no_repeat_ngram) is None:
            return True
        runs = [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
        return len(set(runs)) == len(runs)

    def _repeats(self, what: str, text: str) -> UserError:
        run = f"a run of {self.wanted.no_repeat_ngram} tokens, which no_repeat_ngram forbids"
        return UserError(f"{what} {text!r} repeats {run}")


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
                constraint=rules_of.AnyForbids(rules) if rules else None,
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
    forbidden = rules_of.Forbidden(FORBIDDEN, len(constraints.tokenizer), device)
    for keys, source in _batches(model, sources, request.batch_size, beam=1):
        limits = [constraints.limit(sources[key]) for key in keys]
        rules = [forbidden, *constraints.rules(device)]
        with scoring(model):
            sampled = SampleRequest(
                count=len(keys),
                length=max(limits),
                sampling=Sampling(
                    temperature=request.temperature, top_k=request.top_k, top_p=request.top_p
                ),
                generator=generator,
                previous=torch.full((len(keys),), START, device=device),
                condition=model.encode(source, source == PAD),
                end=END,
                constraint=rules_of.ByPriority(rules),
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
        rows = Ragged.of(sources[key] for key in keys)
        yield keys, torch.from_numpy(rows.padded(range(len(rows)), PAD)).to(device_of(model))


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
