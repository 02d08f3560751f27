"""What recipes of sentence pairs share: the corpus of a config, held-out text, counts."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from triptych.config.files import read_settings_file
from triptych.config.schema import from_plain
from triptych.domains.translation.config import DataConfig
from triptych.domains.translation.sources import Corpus
from triptych.files.lines import read_lines
from triptych.tools.configs import with_files

HEADER = ("source", "target")
"""Columns of a file of pairs."""
_MARKS = re.compile(r"[\W_]+")


def corpus_of(config: str, directory: str | None) -> Corpus:
    """Return data.source of a settings file or shipped config, with another folder unless None."""
    _, file = with_files("translation", ["--config", config])
    plain = yaml.safe_load(read_settings_file(Path(file)).text)
    source = from_plain(DataConfig, {"source": plain["data"]["source"]}, where=file).source
    if directory is not None:
        source = replace(source, directory=directory)  # type: ignore[call-arg]
    return source


def key(text: str) -> str:
    """Return a text in lower case without blanks and punctuation; "" if it has nothing else."""
    return _MARKS.sub("", text.lower())


def keys_of(files: Iterable[str]) -> set[str]:
    """Return the keys of all lines of text files."""
    return {key(line) for file in files for line in read_lines(Path(file))} - {""}


def held_out_keys(corpus: Corpus, files: Iterable[str]) -> set[str]:
    """Return the keys of both sides of all splits but training, and of the lines of files."""
    keys = keys_of(files)
    for split in corpus.splits():
        if split.rpartition(".")[2] != "train":
            keys |= {key(side) for pair in corpus.items(split) for side in pair} - {""}
    return keys


def fault(source: str, target: str, held_out: set[str], max_ratio: float) -> str | None:
    """Return why a pair is no good training pair, None for a good one; lengths are in bytes."""
    keys = key(source), key(target)
    shorter, longer = sorted((len(source.encode()), len(target.encode())))
    if "" in keys:
        return "pairs with a side without a letter"
    if keys[0] == keys[1]:
        return "pairs of equal sides"
    if not held_out.isdisjoint(keys):
        return "pairs that are held out"
    return "pairs of unequal lengths" if longer > max_ratio * shorter else None


def report(left_out: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield how many items were left out for each reason, and print it."""
    for reason, count in sorted(left_out.items()):
        print(f"left out: {count:,} {reason}", file=sys.stderr)
        yield reason, str(count)
