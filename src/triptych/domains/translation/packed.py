"""Packed sentence pairs: the ids of the training and validation pairs in files of any size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from triptych.config.schema import to_plain
from triptych.domains.translation.data import EncodedPairs, learn_vocabulary
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

    Training pairs with an empty side are left out. Text files are read one after the other, so that
    the largest file has to fit into memory. Raises UserError for a tokenizer whose ids do not give
    every text back.
    """
    data = config.data
    if not data.tokenizer.lossless:
        raise UserError(
            f"data.tokenizer is {type(data.tokenizer).__name__}, whose ids do not give every text "
            "back, and a pack holds ids alone; expected BytePairs"
        )
    filled = filter(all, _read(data, "train"))
    tokenizers = learn_vocabulary(data, list(islice(filled, VOCABULARY_PAIRS)))
    dtype = np.min_scalar_type(max(len(tokenizers.source), len(tokenizers.target)))
    counts = {}
    for split in ("train", "validation"):
        progress, rest, read, written = display(f"{split} pairs"), _read(data, split), 0, 0
        while chunk := list(islice(rest, CHUNK)):
            read += len(chunk)
            chosen = list(filter(all, chunk)) if split == "train" else chunk
            encoded = EncodedPairs.of(chosen, tokenizers, dtype)
            writer.append_ragged(f"{split}.sources", encoded.sources)
            writer.append_ragged(f"{split}.targets", encoded.targets)
            written += len(chosen)
            progress(read, 0)
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


def _read(data: DataConfig, split: str) -> Iterator[Pair]:
    return chain(data.source.read(split), data.more_pairs() if split == "train" else ())
