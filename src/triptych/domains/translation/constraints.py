"""Constraints on translations, as decoding needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from triptych.decoding.constraints import (
    BEGIN,
    ForcedText,
    MinimumLength,
    NoRepeatedNgrams,
    RequiredPhrases,
)
from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.translation.domain import OutputConstraints
from triptych.domains.translation.model import END
from triptych.errors import UserError
from triptych.text.tokenizer import TextTokenizer

EXTRA_TOKENS = 50
"""Maximum number of tokens of a translation beyond its source's (1706.03762, section 6.1)."""
NO_SPACES = ("zh", "ja")
"""Languages without spaces between words and sentences."""


@dataclass(frozen=True)
class TokenConstraints:
    """Constraints in tokens, for decoding on any device."""

    wanted: OutputConstraints
    tokenizer: TextTokenizer
    stem: list[int]
    """First tokens of each translation."""
    rest: bytes
    """Bytes of the prefix after the stem."""
    phrases: list[list[list[int]]]
    """All sequences of tokens that count as each required phrase."""
    n_tokens: int
    """Tokens of the prefix and the phrases."""

    def limit(self, source: Sequence[int]) -> int:
        """Return the maximum length of a source's translation in tokens, its end included."""
        if self.wanted.max_length is not None:
            return self.wanted.max_length + 1
        return len(source) + EXTRA_TOKENS + self.n_tokens + self.wanted.min_length

    @property
    def n_banks(self) -> int:
        """Beams of the search for one row, see `RequiredPhrases.n_banks`."""
        return 1 + sum(min(map(len, variants)) for variants in self.phrases)

    @property
    def size(self) -> int:
        """Number of tokens of the vocabulary."""
        return len(self.tokenizer)

    def rules(self, device: torch.device) -> list[LogitsConstraint]:
        """Return the rules about the next token of a translation."""
        wanted = self.wanted
        rules: list[LogitsConstraint] = []
        if wanted.prefix is not None:
            rules.append(ForcedText(self.stem, self.rest, self.tokenizer.token_bytes, device))
        if wanted.min_length:
            rules.append(MinimumLength(wanted.min_length, END, self.size, device))
        if wanted.no_repeat_ngram is not None:
            rules.append(NoRepeatedNgrams(wanted.no_repeat_ngram, self.size))
        return rules

    def required(self, device: torch.device) -> RequiredPhrases | None:
        """Return the required phrases; None if there are none."""
        return RequiredPhrases(self.phrases, device) if self.phrases else None


def prepare_constraints(
    wanted: OutputConstraints, tokenizer: TextTokenizer, *, language: str
) -> TokenConstraints:
    """Return the constraints in tokens of the target.

    language: code of the target language. With spaces between words a required phrase begins after
    one, or the translation begins with it.
    Raises UserError for a prefix and phrases that the tokenizer cannot write, that are longer
    than max_length, or that repeat a run of tokens which no_repeat_ngram forbids.
    """
    stem: list[int] = []
    rest = b""
    count = 0
    if wanted.prefix is not None:
        stem, rest = tokenizer.split_last(wanted.prefix)
        count = len(tokenizer.encode(wanted.prefix))
        if not tokenizer.can_write(wanted.prefix):
            raise UserError(
                f"the vocabulary of the model cannot write the prefix {wanted.prefix!r}"
            )
        if not _may_come(wanted, stem):
            raise UserError(
                f"prefix {wanted.prefix!r} repeats a run of {wanted.no_repeat_ngram} tokens, which "
                "no_repeat_ngram forbids"
            )
    phrases = [_variants(wanted, phrase, tokenizer, language) for phrase in wanted.phrases]
    given = wanted.prefix or ""
    for phrase, variants in zip(wanted.phrases, phrases, strict=True):
        count += 0 if phrase in given else min(map(len, variants))
    if wanted.max_length is not None and count > wanted.max_length:
        raise UserError(
            f"the prefix and the required phrases have {count} tokens; expected at most "
            f"max_length, which is {wanted.max_length}"
        )
    return TokenConstraints(wanted, tokenizer, stem, rest, phrases, count)


def _variants(
    wanted: OutputConstraints, phrase: str, tokenizer: TextTokenizer, language: str
) -> list[list[int]]:
    """Return the sequences of tokens that count as a phrase."""
    text = phrase.strip()
    prefixes: dict[str, list[int]] = {" ": [], "": [BEGIN]}
    if language in NO_SPACES:
        prefixes = {"": []}
    known = {space: before for space, before in prefixes.items() if tokenizer.knows(space + text)}
    if not known:
        raise UserError(f"the vocabulary of the model cannot write the required phrase {phrase!r}")
    variants = [before + tokenizer.encode(space + text) for space, before in known.items()]
    variants = [tokens for tokens in variants if _may_come(wanted, tokens)]
    if not variants:
        raise UserError(
            f"the required phrase {phrase!r} repeats a run of {wanted.no_repeat_ngram} tokens, "
            "which no_repeat_ngram forbids"
        )
    return variants


def _may_come(wanted: OutputConstraints, tokens: Sequence[int]) -> bool:
    """Whether no run of tokens occurs twice that may occur once only."""
    if (n := wanted.no_repeat_ngram) is None:
        return True
    runs = [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
    return len(set(runs)) == len(runs)
