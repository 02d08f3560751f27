"""Terms that have a given translation, in a table or beside a line: read, found and required."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from triptych.errors import UserError
from triptych.text.tables import read_table
from triptych.text.tokenizer import IDEOGRAM, TextTokenizer

MARK = "|||"
"""Between a line and its terms."""
LETTER = rf"[^\W{IDEOGRAM}]"
"""Letter or digit of a script with spaces between words."""


class Wanted(NamedTuple):
    """A term in a text, and the translation that the text's translation must contain."""

    start: int
    end: int
    translation: str


class Terms:
    """Translations by term, of whole words, the longest first.

    A term in small letters is found in any case, another one as it is written. Chinese and Japanese
    characters need no end of a word around them, and a Korean word may go on (with a particle).
    """

    def __init__(self, translations: Mapping[str, str]) -> None:
        self.translations = dict(translations)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        terms = sorted(self.translations, key=lambda term: (-len(term), term == term.lower()))
        return re.compile("|".join(map(_pattern_of, terms)) or r"(?!)")

    def found(self, text: str) -> list[Wanted]:
        """Return the terms that a text has, in their order."""
        return [
            Wanted(*one.span(), self.translations.get(term, "") or self.translations[term.lower()])
            for one in self._pattern.finditer(text)
            for term in [" ".join(one[0].split())]
        ]

    def with_line(self, more: Mapping[str, str]) -> Terms:
        """Return these terms and those of a line, which come first."""
        return Terms({**self.translations, **more})


def whole(text: str, pattern: str) -> str:
    """Return a pattern of a text that no letter or digit continues; pattern: of the text alone."""
    begin = rf"(?<!{LETTER})" if re.match(LETTER, text) else ""
    end = rf"(?!(?![\uac00-\ud7a3]){LETTER})" if re.search(rf"{LETTER}$", text) else ""
    return begin + pattern + end


def _pattern_of(term: str) -> str:
    text = r"\s+".join(map(re.escape, term.split()))
    return whole(term, f"(?i:{text})" if term == term.lower() else text)


def read_glossary(path: str) -> dict[str, str]:
    """Return the translations by term of a table of two columns; UserError names a wrong row."""
    terms: dict[str, str] = {}
    for cells, where in read_table(Path(path)):
        if len(cells) != 2 or not all(cells):
            raise UserError(f"{where}: expected a term, a tab and its translation")
        if terms.setdefault(term := " ".join(cells[0].split()), cells[1]) != cells[1]:
            raise UserError(f"{where}: {term!r} has another translation in an earlier row")
    if not terms:
        raise UserError(f"{path} has no term; expected a term, a tab and its translation a line")
    return terms


def split_terms(line: str) -> tuple[str, dict[str, str]]:
    """Return a line and the terms beside it, `line ||| term=translation; term=translation`."""
    text, mark, beside = line.rpartition(MARK)
    if not mark:
        return line, {}
    terms = {}
    for each in filter(str.strip, beside.split(";")):
        term, _, translation = (" ".join(part.split()) for part in each.partition("="))
        if not (term and translation):
            raise UserError(
                f"the line {line!r} has {each.strip()!r} after {MARK}; expected "
                "term=translation, several with ; between them"
            )
        terms[term] = translation
    return text.strip(" "), terms


def check_terms(terms: Iterable[tuple[str, str]], target: TextTokenizer) -> None:
    """Raise UserError for a translation that a vocabulary cannot write."""
    for term, text in terms:
        if not (target.knows(f" {text}") or target.knows(text)):
            raise UserError(
                f"the vocabulary of the model cannot write {text!r}, the translation of {term!r}"
            )


def count_words(translation: str, text: str) -> int:
    """Return how often a text contains a translation as whole words."""
    return len(re.findall(whole(translation, re.escape(translation)), text))
