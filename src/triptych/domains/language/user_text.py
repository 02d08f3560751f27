"""A user's text: its files by split, and what its amount and lengths suggest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from triptych.domains.language.model import SPECIALS
from triptych.domains.language.sources import Document
from triptych.errors import UserError
from triptych.files.user_data import HELD_OUT, Setting, letters, span
from triptych.text.word_piece import WordPiece

LOOKED_AT = 5000
"""Sentences whose tokens are counted; of more, evenly spaced documents."""
VOCABULARIES = (1000, 2000, 4000, 8000, 16_000, 32_000)
"""Sizes to choose from."""
CHARACTERS_PER_SYMBOL = 500
"""Characters of text for each symbol of the vocabulary."""
FOREIGN = 0.01
"""Share of letters outside of a to z above which capital letters and accents are kept."""
LENGTHS = (32, 64, 96, 128, 192, 256)
"""Lengths of an example in tokens to choose from."""
FITTING = 0.95
"""Share of the documents that fit into the length."""
NAMED = 4
"""Files of a split that are named."""


class TextData(NamedTuple):
    """Files of a user's text."""

    given: str
    """Option that names them, for errors."""
    directory: str
    """Folder as the user writes it."""
    names: dict[str, list[str]]
    """Names in the folder by split; train is there."""

    def missing(self) -> list[str]:
        """Return the splits that are held out of the training files."""
        return [split for split in HELD_OUT if split not in self.names]

    def check_filled(self, counts: dict[str, int]) -> None:
        """Raise UserError for a split without text; counts: of items by split."""
        for split, names in self.names.items():
            if not counts[split]:
                raise UserError(f"{self.given}: no text in {', '.join(names[:NAMED])}")

    def sentence(self, counts: dict[str, int], what: str) -> str:
        """Return a sentence about the files of each split; counts: number of `what` by split."""
        parts = []
        for split, names in self.names.items():
            shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
            parts.append(f"{split}: {counts[split]:,} {what} of {shown}")
        return "; ".join(parts)


class Lengths(NamedTuple):
    """What the documents of a text suggest."""

    settings: dict[str, Setting]
    """Vocabulary and length of an example."""
    n_tokens: float
    """Tokens of all documents, about."""
    sentence: str


def measure(documents: Sequence[Document], *, n_specials: int) -> Lengths:
    """Return the settings of vocabulary and length; n_specials: special ids of an example."""
    n_sentences = sum(map(len, documents))
    n_characters = sum(len(sentence) for document in documents for sentence in document)
    some = documents[:: -(-n_sentences // LOOKED_AT)]
    lines = [sentence for document in some for sentence in document]
    written = [character for line in lines for character in line if character.isalpha()]
    foreign = sum(not letter.isascii() for letter in written) / max(1, len(written))
    # A symbol for each letter at the beginning of a word, and one inside.
    wanted = max(n_characters / CHARACTERS_PER_SYMBOL, 2 * len(set(written)))
    size = next((size for size in VOCABULARIES if size >= wanted), VOCABULARIES[-1])
    lowercase = foreign <= FOREIGN
    tokenizer = WordPiece(lowercase).build(lines, size, SPECIALS)
    sizes = map(len, tokenizer.encode_batch(lines))
    lengths = [n_specials + sum(next(sizes) for _ in document) for document in some]
    needed = sorted(lengths)[int(FITTING * (len(lengths) - 1))]
    most = next((length for length in LENGTHS if length >= needed), LENGTHS[-1])
    fitting = sum(length <= most for length in lengths) / len(lengths)
    n_tokens = sum(lengths) / len(lengths) * len(documents)
    kept = "removed, in samples too" if lowercase else "kept"
    settings = {
        "data.tokenizer.lowercase": Setting(lowercase, f"capital letters and accents are {kept}"),
        "data.vocabulary_size": Setting(size, f"at most, for {n_characters:,} characters"),
        "data.max_length": Setting(most, f"tokens; about {fitting:.0%} of the texts fit"),
    }
    sentence = (
        f"about {float(f'{n_tokens:.3g}'):,.0f} tokens in the training files, "
        f"{span(lengths, ' tokens')} a text; letters: {letters(lines)}"
    )
    return Lengths(settings, n_tokens, sentence)
