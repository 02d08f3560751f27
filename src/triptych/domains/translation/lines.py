"""Lines of text around a search: long ones in parts, and results without line ends. No torch."""

import re

from triptych.text.tokenizer import TextTokenizer

EXTRA_TOKENS = 50
"""Maximum number of tokens of a translation beyond its source's (1706.03762, section 6.1)."""
SENTENCE_END = re.compile(r"""(?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+|(?<=[。！？])""")
"""Where one sentence ends and the next one begins; white space between them belongs to neither."""
NO_SPACES = ("zh", "ja")
"""Languages without spaces between words and sentences."""


def primary_subtag(language: str) -> str:
    """Return the language of a code without country or script: pt of pt-BR, zh of zh_Hant."""
    return language.lower().replace("_", "-").split("-")[0]


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
