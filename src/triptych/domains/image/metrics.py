"""Bits per dimension and their baselines; scores of completion and of super-resolution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.domains.image.model import average_down
from triptych.domains.pictures.data import Batch, ImageDataset
from triptych.domains.pictures.render import repeat
from triptych.training.engine.evaluate import in_double, sum_scores
from triptych.types import Progress

if TYPE_CHECKING:
    from triptych.domains.image.inference import ImageModel

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
        cells = part.flatten(1).long() + offset  # [n, HWC]
        counts += torch.bincount(cells.flatten(), minlength=positions * levels)
    bits = -(counts / (len(train) + levels)).log2()
    parts = held_out.split(COUNTING_BATCH)
    total = sum(bits[part.flatten(1).long() + offset].sum().item() for part in parts)
    return total / held_out.numel()


BATCH = 32
"""Rows scored together."""


def completion_scores(
    trained: ImageModel,
    images: ImageDataset,
    filled: Tensor,
    *,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return bits per dim of the filled pixels given the others, and of the others alone.

    filled: bool [H, W], all after the given pixels in the generation order.
    """
    model = trained.full_model
    known = model.known_positions(filled).cpu()  # [L]

    def score(batch: Batch) -> dict[str, Tensor]:
        nats = in_double(model.nll(batch.pixels, batch.labels)).cpu()  # [B, L]
        return {"given": nats[:, known].sum(), "filled": nats[:, ~known].sum()}

    nats = sum_scores(model, score, images.fixed_batches(BATCH), progress)
    n_filled = int(filled.sum())
    bits = math.log(2) * len(images) * images.pixels.shape[-1]
    n_given = filled.numel() - n_filled
    scores = {
        "images": len(images),
        "filled_bits_per_dim": nats["filled"] / (bits * n_filled),
        "given_bits_per_dim": nats["given"] / (bits * n_given) if n_given else None,
    }
    return {"completion": scores}


def upscaling_scores(
    trained: ImageModel, images: ImageDataset, *, seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Return pSNR and consistency of one sample of each image, and of interpolations.

    By method (samples, nearest, bicubic): psnr in dB, 10 log10(M^2 / MSE) with the highest level M
    and the mean squared error over all images; consistent_share, the share of sub-pixels of the
    small image that the result averaged down equals exactly; consistency_error, the mean absolute
    difference from it in levels.
    """
    model, factor = trained.upscaling_model()
    small = average_down(images.pixels, factor)  # [N, h, w, C]
    labels = images.labels.tolist() if model.n_classes and images.labels is not None else None
    samples = trained.upscale(small.numpy(), labels=labels, seed=seed, progress=progress)
    planes = small.permute(0, 3, 1, 2).float()  # [N, C, h, w]
    cubic = F.interpolate(planes, scale_factor=factor, mode="bicubic", align_corners=False)
    cubic = cubic.round().clamp(0, model.levels - 1).permute(0, 2, 3, 1)  # [N, H, W, C]
    results = {
        "samples": torch.from_numpy(samples[:, 0]),
        "nearest": repeat(small, factor),
        "bicubic": cubic.to(torch.uint8),
    }
    scores: dict[str, Any] = {"images": len(images)}
    for method, pixels in results.items():
        error = (pixels.double() - images.pixels.double()).square().mean()
        again = (average_down(pixels, factor).double() - small.double()).abs()
        scores[method] = {
            "psnr": float(10 * ((model.levels - 1) ** 2 / error).log10()),
            "consistent_share": float((again == 0).double().mean()),
            "consistency_error": float(again.mean()),
        }
    return {"upscaling": scores}
