"""Bits per dimension: sums over a batch, ratios of sums, and the baselines of simple models."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from triptych.domains.pictures.data import Batch
from triptych.training.engine.evaluate import in_double

COUNTING_BATCH = 2048
"""Images counted at once; bounds the memory of their indices as 64-bit integers."""


class ImageScores:
    """Sums over a batch and their ratio, for the training module and the trained model."""

    domain: ClassVar[str] = "image"
    monitor: str = "bits_per_dim"
    model: Any  # ImageTransformer

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Return the sums over a batch, float64 scalars: nats, dims (sub-pixels) and images."""
        nats = self.model.nll(batch.pixels, batch.labels)  # [B, L]
        return {
            "nats": in_double(nats).sum(),
            "dims": torch.tensor(batch.pixels.numel(), dtype=torch.float64),
            "images": torch.tensor(len(batch.pixels), dtype=torch.float64),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return bits_per_dim: the mean bits per sub-pixel, from the sums over a split."""
        return {"bits_per_dim": totals["nats"] / math.log(2) / totals["dims"]}


def histogram_bits_per_dim(train: Tensor, held_out: Tensor, levels: int) -> float:
    """Return the bits per sub-pixel of one smoothed histogram per sub-pixel position.

    train, held_out: uint8 [N, H, W, C] and [M, H, W, C]. Every count starts at one. The model
    knows the brightness at each position and no dependence between sub-pixels.
    """
    positions = held_out.shape[1:].numel()
    offset = torch.arange(positions) * levels
    counts = torch.ones(positions * levels, dtype=torch.float64)
    for part in train.split(COUNTING_BATCH):
        cells = (part.reshape(len(part), positions).long() + offset).reshape(-1)  # [n * HWC]
        counts += torch.bincount(cells, minlength=positions * levels)
    bits = -(counts / (len(train) + levels)).log2()
    total = sum(
        bits[part.reshape(len(part), positions).long() + offset].sum().item()
        for part in held_out.split(COUNTING_BATCH)
    )
    return total / held_out.numel()
