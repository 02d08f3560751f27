"""Rows of an embedding table: taken over from another vocabulary, or word vectors of a file."""

import gzip
import zlib
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

import torch
from torch import Tensor, nn

from triptych.errors import UserError

NEW = -1
"""Row of a symbol that the other vocabulary does not have."""


OTHER_VOCABULARY = (
    "; run.start.init_vocabulary data keeps the weights of the symbols that both have and starts "
    "the others anew"
)
"""End of the refusal of initial weights that belong to another vocabulary."""


class RowMap(NamedTuple):
    """The rows of another model's weights from which a model takes the rows of its symbols."""

    what: str
    """Kind of the symbols in the plural, such as tokens."""
    n_before: int
    """Number of symbols of the other model."""
    rows: list[int]
    """For each symbol its row in the other model, or NEW."""
    weights: tuple[str, ...]
    """Names of the weights: [n, ...], or [groups x n, ...] with all n symbols in each group."""

    @property
    def n_new(self) -> int:
        return self.rows.count(NEW)

    def __str__(self) -> str:
        return f"{len(self.rows) - self.n_new:,} {self.what} copied, {self.n_new:,} new"


def same_symbols(
    what: str, before: Sequence[Hashable], now: Sequence[Hashable], weights: tuple[str, ...]
) -> RowMap:
    """Return the map in which a symbol takes the row of the equal symbol of the other model."""
    rows = {symbol: row for row, symbol in enumerate(before)}
    return RowMap(what, len(before), [rows.get(symbol, NEW) for symbol in now], weights)


def with_rows(
    initial: Mapping[str, Tensor], other: Mapping[str, Tensor], maps: Sequence[RowMap]
) -> dict[str, Tensor]:
    """Return the weights of another model with the rows of this model's symbols.

    initial: weights of this model, from which new symbols keep their rows. A weight that the other
    model lacks, or has in another shape, is returned as it is there.
    """
    weights = dict(other)
    for each in maps:
        known = [row for row, source in enumerate(each.rows) if source != NEW]
        sources = [source for source in each.rows if source != NEW]
        for name in each.weights:
            if name not in other or len(other[name]) % each.n_before:
                continue
            before = other[name].unflatten(0, (-1, each.n_before))  # [groups, n_before, ...]
            now = initial[name].unflatten(0, (-1, len(each.rows))).clone()  # [groups, n, ...]
            if now[:, 0].shape == before[:, 0].shape:
                now[:, known] = before[:, sources].to(now)
                weights[name] = now.flatten(0, 1)
    return weights


FIXED_ROWS = "triptych_fixed_rows"
"""Key of a checkpoint with the numbers of the rows that the training leaves as they are."""
OPTION = "run.start.word_vectors"
"""Setting that names the file."""


class WordRows(NamedTuple):
    """Embedding table [V, D] with a row for each token, and the tokens that are words."""

    table: nn.Parameter
    words: Sequence[str | None]
    """For each row its word; None for a token that is no whole word."""


@dataclass(frozen=True)
class FixedRows:
    """Rows of a table, int64 [n], that training leaves as they are: vectors [n, D]."""

    table: nn.Parameter
    rows: Tensor
    vectors: Tensor

    @torch.no_grad()
    def restore(self) -> None:
        """Write the values into the table, after an update that has moved them."""
        table = self.table
        table[self.rows.to(table.device)] = self.vectors.to(table)


def place_vectors(target: WordRows, path: str) -> FixedRows:
    """Write the vectors of a file into the rows of their words, and return those rows.

    A word that the file has in lower case alone takes that vector. Raises UserError as
    `read_vectors` does, and for a file that has none of the words.
    """
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, word in enumerate(target.words):
        if word is not None:
            rows_of[word].append(row)
    lower = {word: word.lower() for word in rows_of}
    vectors = read_vectors(path, {*rows_of, *lower.values()}, target.table.shape[1])
    vector_of = {
        row: vectors[word] if word in vectors else vectors[lower[word]]
        for word, rows in rows_of.items()
        if word in vectors or lower[word] in vectors
        for row in rows
    }
    if not vector_of:
        raise UserError(
            f"{OPTION}: {path} has none of the {len(rows_of):,} words of the vocabulary; is it of "
            f"another language, has it other than {target.table.shape[1]} numbers a word "
            "(model.transformer.d_model), or are the tokens no words?"
        )
    rows = torch.tensor(sorted(vector_of))  # [n]
    fixed = FixedRows(target.table, rows, torch.stack([vector_of[int(row)] for row in rows]))
    fixed.restore()
    return fixed


def read_vectors(path: str, wanted: set[str], d_model: int) -> dict[str, Tensor]:
    """Return the vectors of the wanted words of a file, float32 [d_model] each.

    Text, one word and its numbers per line, with the first line "words size" of word2vec or
    without it, compressed (.gz) or not. Of equal words the first counts. Raises UserError for a
    missing or damaged file, or vectors of fewer numbers.
    """
    file = Path(path)
    vectors: dict[str, Tensor] = {}
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(cast(IO[bytes], stream), start=1):
                if number == 1 and len(line.split()) == 2:
                    continue
                try:
                    word, *numbers = line.rsplit(None, d_model)  # a word may contain spaces
                    if len(numbers) < d_model:
                        raise ValueError("too few numbers")
                    if (text := word.decode("utf-8-sig")) in wanted:
                        vector = torch.tensor([float(x) for x in numbers])
                        if not vector.isfinite().all():
                            raise ValueError("a number is not finite")
                        vectors.setdefault(text, vector)
                except ValueError as error:
                    raise UserError(
                        f"{OPTION}: {path}, line {number} is no word and {d_model} numbers "
                        "(model.transformer.d_model) in UTF-8; `triptych data make word2vec` "
                        "writes word2vec's binary form as text"
                    ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{OPTION}: {path} cannot be read: {error}") from error
    if not number:
        raise UserError(f"{OPTION}: {path} is empty; expected a word2vec or GloVe file")
    return vectors
