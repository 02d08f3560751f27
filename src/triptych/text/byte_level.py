"""Tokenizers of bytes, pairs of them, characters and words, which give back text of any script."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Split

from triptych.errors import UserError
from triptych.text.tables import read_columns
from triptych.text.tokenizer import TextTokenizer, TokenizerConfig
from triptych.types import PositiveInt

UNKNOWN = "<unk>"
"""Name and text of the token for everything outside a vocabulary of characters or words."""


@dataclass(frozen=True)
class BytePairs(TokenizerConfig):
    """Byte-level BPE (Sennrich et al. 2016): frequent words are one token; encodes any text."""

    first_as_others: bool = False
    """Read a text as if a space was before it, so that its first word has the tokens that the word
    has in the middle: for small corpora, in which few words begin a text. Chinese and Japanese have
    no such spaces."""

    min_pieces: ClassVar[int] = 256

    def build(self, lines: Iterable[str], size: int, specials: Sequence[str]) -> TextTokenizer:
        bpe = Tokenizer(models.BPE())
        # Splits before spaces and between letters, digits and punctuation, as GPT-2 does.
        bpe.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
        bpe.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size - len(specials),
            initial_alphabet=ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer = TextTokenizer(bpe, specials, spaced=self.first_as_others)
        bpe.train_from_iterator(map(tokenizer.as_read, lines), trainer)
        return tokenizer


@dataclass(frozen=True)
class ReplacedCharacters(TokenizerConfig):
    """Tokens of another kind, in text whose characters a table replaces first.

    For Chinese in both scripts: one word then has one spelling. Character by character, in all text
    of the vocabulary: a shared one also writes replaced characters alone. The checkpoint contains
    the table.
    """

    table: str = "data/simplified/characters.tsv"
    """Tab-separated file with the columns character and read_as, which training needs; the recipe
    simplified writes that of Chinese."""
    of: TokenizerConfig = field(default_factory=BytePairs)
    """Kind of tokens, by class path."""

    min_pieces: ClassVar[int] = BytePairs.min_pieces

    def build(self, lines: Iterable[str], size: int, specials: Sequence[str]) -> TextTokenizer:
        table, columns = {}, ("character", "read_as")
        for (before, after), _ in read_columns(Path(self.table).expanduser(), columns):
            if len(before) != 1 or len(after) != 1:
                raise UserError(
                    f"{self.table} has {before!r} read as {after!r}; expected single characters"
                )
            table[ord(before)] = after
        tokenizer = self.of.build((line.translate(table) for line in lines), size, specials)
        tokenizer.replaced = table
        return tokenizer


@dataclass(frozen=True)
class Characters(TokenizerConfig):
    """One token for each Unicode character; those not in the training text are <unk>."""

    def build(self, lines: Iterable[str], size: int, specials: Sequence[str]) -> TextTokenizer:
        each = Split(Regex(r"[\s\S]"), "isolated")
        split = pre_tokenizers.Sequence([each, ByteLevel(add_prefix_space=False, use_regex=False)])
        return _whole_units(split, lines, size, specials)


@dataclass(frozen=True)
class Words(TokenizerConfig):
    """One token for each word with the space before it, number and run of punctuation.

    The most frequent ones are the vocabulary; all others are <unk>.
    """

    min_count: PositiveInt = 2
    """Occurrences in the training text from which a word is in the vocabulary. With 1 and a large
    vocabulary no training sentence has <unk>, and the model learns nothing about it."""

    def build(self, lines: Iterable[str], size: int, specials: Sequence[str]) -> TextTokenizer:
        split = ByteLevel(add_prefix_space=False, use_regex=True)
        return _whole_units(split, lines, size, specials, min_count=self.min_count)


def _whole_units(
    split: pre_tokenizers.PreTokenizer,
    lines: Iterable[str],
    size: int,
    specials: Sequence[str],
    *,
    min_count: int = 1,
) -> TextTokenizer:
    """Learn a tokenizer of the most frequent units that `split` finds, whose letters are bytes."""
    counted = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    counted.pre_tokenizer = split
    most = size - len(specials) - 1
    trainer = trainers.WordLevelTrainer(
        vocab_size=most, min_frequency=min_count, show_progress=False
    )
    counted.train_from_iterator(lines, trainer)
    found = counted.get_vocab()
    # Not as an added token of the library, which would read the characters "<unk>" as this token.
    names = [UNKNOWN, *sorted(found, key=found.__getitem__)]
    ids = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    return TextTokenizer(tokenizer, specials)
