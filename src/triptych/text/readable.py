"""Text as it is typed, in the characters that a vocabulary has: harmless replacements alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

QUOTES = {**dict.fromkeys("‘’‚‛′", "'"), **dict.fromkeys("“”„‟″«»", '"')}
PLAIN = {**QUOTES, **dict.fromkeys("‐‑‒–—―−", "-")}
"""Characters that Unicode's compatibility forms leave alone, and what a keyboard has for them."""


def readable(line: str, known: Callable[[str], bool]) -> str:
    """Return a line in which characters that are not known are replaced by harmless equals.

    The equals are nothing for invisible characters (soft hyphens, zero-width ones), straight quotes
    and hyphens, composed or decomposed letters, and Unicode's compatibility forms (full-width
    letters, ligatures, ...). A known character stays, and so does one without a known equal. Where
    a quote is replaced, all of the line are. White space of all kinds is a space, known or not; the
    full-width punctuation of a line with known Chinese, Japanese or Korean letters stays.
    """
    spaced = "".join(" " if each.isspace() and each > "\x7f" else each for each in line)
    if spaced == line and all(map(known, line)):
        return line
    line = unicodedata.normalize("NFC", spaced)
    quotes = {} if all(known(each) for each in line if each in QUOTES) else QUOTES
    width, category = unicodedata.east_asian_width, unicodedata.category
    own: set[str] = set()
    if any(width(each) == "W" and known(each) for each in line):
        own = {each for each in line if width(each) == "F" and category(each)[0] == "P"}
    text = "".join(
        quotes[each] if each in quotes else each if each in own else _equal(each, known)
        for each in line
    )
    return re.sub(" {2,}", " ", text)


def _equal(character: str, known: Callable[[str], bool]) -> str:
    if known(character):
        return character
    category, name = unicodedata.category(character), unicodedata.name(character, "")
    if category == "Cf" or name.startswith("VARIATION SELECTOR"):
        return ""
    compatible = (unicodedata.normalize(form, character) for form in ("NFKC", "NFKD"))
    equals = (PLAIN.get(character, character), *compatible)
    return next((each for each in equals if all(map(known, each))), character)


def in_usual_case(line: str, n_tokens: Callable[[str], int]) -> str | None:
    """Return a line in capitals in the case that the vocabulary has seen; None for another line.

    Each word gets the form, in small letters or with a capital, of fewer tokens. None also where
    that saves less than half of the tokens: the vocabulary knows capitals, or case makes no
    difference. n_tokens: of a text.
    """
    words = line.split()
    if line != line.upper() or sum(len(word) > 1 and word != word.lower() for word in words) < 2:
        return None
    forms = ((word.lower(), word.capitalize()) for word in words)
    chosen = [min(form, key=lambda word: n_tokens(f" {word}")) for form in forms]
    text = re.sub(r"(^|[.!?] )\w", lambda found: found[0].upper(), " ".join(chosen))
    return text if 2 * n_tokens(text) <= n_tokens(line) else None
