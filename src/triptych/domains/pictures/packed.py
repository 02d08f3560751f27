"""Packed images: the pixels and classes of the training and validation images in files."""

from __future__ import annotations

import numpy as np

from triptych.config.schema import to_plain
from triptych.training.loading.packed import PackWriter
from triptych.training.run.settings import RunSettings


def pack(config: RunSettings, writer: PackWriter) -> str:
    """Write the training and validation images; return a sentence about them."""
    counts = {}
    vocabulary = {}
    for split in ("train", "validation"):
        counts[split] = 0
        for part in config.data.stream(split):
            vocabulary = part.vocabulary()
            writer.append(f"{split}.pixels", part.pixels.numpy())
            if part.labels is not None:
                writer.append(f"{split}.labels", part.labels.numpy().astype(np.int64))
            counts[split] += len(part)
    writer.finish(
        {
            "domain": "image",
            "data": to_plain(config.data),
            "vocabulary": vocabulary,
            "counts": counts,
        }
    )
    return f"{counts['train']:,} training images in {writer.folder}"
