"""Lines longer than the pairs a model was trained on, as pieces that it can translate.

A model writes little that is useful about a sequence longer than any of its training: it stops
after the first sentence, or repeats itself up to the length limit.
"""

from __future__ import annotations

import re

from triptych.text.tokenizer import TextTokenizer

SENTENCE_END = re.compile(r"""(?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+|(?<=[。！？])""")
"""Where one sentence ends and the next one begins; white space between them belongs to neither."""


def split_long(line: str, tokenizer: TextTokenizer, max_tokens: int) -> list[str]:
    """Return the sentences of a line of more than `max_tokens` tokens, or the line alone.

    A sentence that is still too long is halved, at the space nearest to its middle or, in a word,
    at the middle, as often as it is necessary.
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
