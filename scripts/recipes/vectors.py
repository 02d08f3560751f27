"""Word vectors of a text by counting, for run.start.word_vectors.

Writes vectors.txt in the form of GloVe: a word and its numbers a line. Positive pointwise mutual
information of two words within a window, reduced by a singular value decomposition with the square
roots of the singular values (Levy and Goldberg 2014, sections 3.1 and 3.3). Words are lower-cased.
For text without published vectors; the licence of the text applies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.types import Checked, PositiveInt

WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Options(Checked):
    """Texts and sizes."""

    texts: tuple[str, ...]
    """Text files, .gz or not."""
    size: PositiveInt = 128
    """Numbers of a vector: model.transformer.d_model."""
    window: PositiveInt = 3
    """Words to each side of a word."""
    words: PositiveInt = 5_000
    """Most words, the most frequent ones first."""


def main(options: Options) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the file."""
    texts = (read_lines(Path(text)) for text in options.texts)
    lines = [WORD.findall(line.lower()) for text in texts for line in text]
    counts = Counter(word for line in lines for word in line)
    words = [word for word, _ in counts.most_common(options.words)]
    if options.size > len(words):
        raise UserError(f"size is {options.size}; expected at most {len(words)}, the words")
    vectors = count_vectors(lines, words, window=options.window, size=options.size).tolist()
    rows = zip(words, vectors, strict=True)
    yield "vectors.txt", (" ".join([word, *(f"{x:.6g}" for x in row)]) for word, row in rows)


def count_vectors(lines: list[list[str]], words: list[str], *, window: int, size: int) -> Tensor:
    """Return the vector of each word, float32 [V, size], of mean length 1."""
    row_of = {word: row for row, word in enumerate(words)}
    counts = torch.zeros(len(words), len(words))  # [V, V]
    pairs = Counter(
        pair
        for line in lines
        for place, word in enumerate(line)
        for other in line[place + 1 : place + 1 + window]
        for pair in ((word, other), (other, word))
    )
    for (word, other), count in pairs.items():
        if word in row_of and other in row_of:
            counts[row_of[word], row_of[other]] = count
    expected = counts.sum(1, keepdim=True) * counts.sum(0) / counts.sum()  # [V, V]
    ppmi = (counts / expected.clamp(min=1e-9)).log().clamp(min=0)  # [V, V]
    torch.manual_seed(0)
    left, singular, _ = torch.svd_lowrank(ppmi, q=size, niter=4)  # [V, size], [size]
    vectors = left * singular.sqrt()  # [V, size]
    scaled: Tensor = vectors / vectors.norm(dim=1).mean()
    return scaled
