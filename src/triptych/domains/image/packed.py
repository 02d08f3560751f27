"""Packed images: the pixels and classes of the training and validation images in files."""

from __future__ import annotations

import numpy as np
import torch

from triptych.config.schema import to_plain
from triptych.domains.base import ProgressFactory
from triptych.domains.image.config import Config
from triptych.training.packed import PackWriter

CHUNK = 4096
"""Images written at a time."""


def pack(config: Config, writer: PackWriter, report: ProgressFactory) -> str:
    """Write the training and validation images; return a sentence about them."""
    counts = {}
    vocabulary = {}
    for split in ("train", "validation"):
        images = config.data.read(split)
        vocabulary = images.vocabulary()
        progress = report(f"{split} images")
        for start in range(0, len(images), CHUNK):
            part = images.select(torch.arange(start, min(start + CHUNK, len(images))))
            writer.append(f"{split}.pixels", part.pixels.numpy())
            if part.labels is not None:
                writer.append(f"{split}.labels", part.labels.numpy().astype(np.int64))
            progress(start + len(part), len(images))
        counts[split] = len(images)
    writer.finish(
        {
            "domain": "image",
            "data": to_plain(config.data),
            "vocabulary": vocabulary,
            "counts": counts,
        }
    )
    return f"{counts['train']:,} training images in {writer.folder}"
