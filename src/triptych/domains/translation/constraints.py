"""Constraints on translations, as decoding needs them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from triptych.decoding import constraints
from triptych.decoding.sampling import LogitsConstraint
from triptych.domains.translation.domain import TranslationRequest
from triptych.domains.translation.model import END
from triptych.errors import UserError
from triptych.text.tokenizer import TextTokenizer

EXTRA_TOKENS = 50
"""Maximum number of tokens of a translation beyond its source's (1706.03762, section 6.1)."""
NO_SPACES = ("zh", "ja")
"""Languages without spaces between words and sentences."""


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
        if prefix and not tokenizer.can_write(prefix):
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
                constraints.ForcedText(self.stem, self.rest, self.tokenizer.token_bytes, device)
            )
        if wanted.min_length or wanted.max_length:
            rules.append(
                constraints.Lengths(wanted.min_length, wanted.max_length, END, size, device)
            )
        if wanted.no_repeat_ngram is not None:
            rules.append(constraints.NoRepeatedNgrams(wanted.no_repeat_ngram, size))
        return rules

    def required(self, device: torch.device) -> constraints.RequiredPhrases | None:
        """Return the required phrases; None if there are none."""
        return constraints.RequiredPhrases(self.phrases, device) if self.phrases else None

    def _variants(self, phrase: str, language: str) -> list[list[int]]:
        """Return the sequences of tokens that count as a phrase."""
        text, tokenizer = phrase.strip(), self.tokenizer
        prefixes = {"": []} if language in NO_SPACES else {" ": [], "": [constraints.BEGIN]}
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
