"""Packed sentence pairs: the ids of the training and validation pairs in files of any size."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from triptych.config.schema import to_plain
from triptych.domains.translation.data import EncodedPairs, learn_vocabulary
from triptych.domains.translation.model import Tokenizers
from triptych.domains.translation.sources import Pair
from triptych.errors import UserError
from triptych.files.progress import display
from triptych.training.loading.packed import PackWriter

if TYPE_CHECKING:
    from triptych.domains.translation.config import Config, DataConfig

VOCABULARY_PAIRS = 2_000_000
"""Training pairs, from the first on, of which the vocabulary of a pack is learnt."""
CHUNK = 10_000
"""Pairs encoded at a time."""


def pack(config: Config, writer: PackWriter) -> str:
    """Write the training and validation pairs as ids; return a sentence about them.

    Text files are read one after the other, so that the largest file has to fit into memory. Raises
    UserError for a tokenizer whose ids do not give every text back.
    """
    data = config.data
    if not data.tokenizer.lossless:
        raise UserError(
            f"data.tokenizer is {type(data.tokenizer).__name__}, whose ids do not give every text "
            "back, and a pack holds ids alone; expected BytePairs"
        )
    filled = filter(all, _read(data, "train"))
    tokenizers = learn_vocabulary(data, list(islice(filled, VOCABULARY_PAIRS)))
    counts = {}
    for split in ("train", "validation"):
        read, written = _write(writer, split, _read(data, split), tokenizers)
        counts[split] = {"pairs": written, "empty": read - written}
    writer.finish(
        {
            "domain": "translation",
            "data": to_plain(data),
            "vocabulary": tokenizers.to_plain(),
            "counts": counts,
        }
    )
    return f"{counts['train']['pairs']:,} training pairs; {tokenizers}"


def _read(data: DataConfig, split: str) -> Iterable[Pair]:
    pairs = data.source.read(split)
    return chain(pairs, data.more_pairs()) if split == "train" else pairs


def _write(
    writer: PackWriter,
    split: str,
    pairs: Iterable[Pair],
    tokenizers: Tokenizers,
) -> tuple[int, int]:
    """Write the pairs of a split, of the training only those without an empty side.

    Returns the number of pairs read and written.
    """
    progress = display(f"{split} pairs")
    dtype = np.min_scalar_type(max(len(tokenizers.source), len(tokenizers.target)))
    rest, read, written = iter(pairs), 0, 0
    while chunk := list(islice(rest, CHUNK)):
        read += len(chunk)
        chosen = list(filter(all, chunk)) if split == "train" else chunk
        encoded = EncodedPairs.of(chosen, tokenizers, dtype)
        writer.append_ragged(f"{split}.sources", encoded.sources)
        writer.append_ragged(f"{split}.targets", encoded.targets)
        written += len(chosen)
        progress(read, 0)
    return read, written
