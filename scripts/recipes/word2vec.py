"""Word vectors in the binary form of word2vec as text, for run.start.word_vectors.

Writes vectors.txt: the number of words and of numbers, then a word and its numbers a line, exact in
32 bits. The licence of the file applies.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from triptych.errors import UserError
from triptych.types import Checked


@dataclass(frozen=True)
class Options(Checked):
    """The file to convert."""

    file: str
    """File in the binary form of word2vec, .gz or not."""


def main(options: Options) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the file; raises UserError for a missing or damaged one."""
    yield "vectors.txt", text_lines(Path(options.file))


def text_lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            stream = cast(IO[bytes], opened)
            header = stream.readline().split()
            if len(header) != 2 or not all(part.isdigit() for part in header):
                raise UserError(f"{path} does not begin with two numbers as word2vec files do")
            n_words, size = map(int, header)
            yield f"{n_words} {size}"
            for number in range(1, n_words + 1):
                name = b"".join(iter(lambda: stream.read(1).replace(b" ", b""), b""))
                content = stream.read(4 * size)
                if len(content) < 4 * size:
                    raise UserError(f"{path} ends within word {number} of {n_words}")
                word = name.lstrip(b"\n").decode()
                yield " ".join([word, *(f"{x:.9g}" for x in np.frombuffer(content, "<f4"))])
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, word {number} is not UTF-8 text ({error.reason})") from error
