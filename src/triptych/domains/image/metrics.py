"""Bits per dimension and their baselines; scores of completion and of super-resolution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from triptych.domains.image.model import average_down
from triptych.domains.pictures.data import Batch, ImageDataset, labels_of
from triptych.domains.pictures.render import repeat
from triptych.training.engine.devices import device_of, scoring
from triptych.training.engine.evaluate import in_double
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
    draws: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return bits per dim of the filled pixels given the others, and of the others alone.

    filled: bool [H, W], all after the given pixels in the generation order.
    With draws also `filled_alone_bits_per_dim`, of the filled pixels without the given ones: for
    each image -log2 of the mean of p(filled | g_k), g_k the given pixels of `draws` samples of the
    model, of the image's class where it has one. That mean is the likelihood of a mixture of
    `draws` distributions; by Jensen's inequality the bits are in expectation at least those of the
    model's own marginal distribution, which they approach as the draws grow.
    """
    model = trained.full_model
    device, classes = device_of(model), images.labels if model.n_classes else None
    samples = {  # of each class: [draws, H, W, C]
        label: torch.from_numpy(trained.sample(draws, seed=seed, label=label))
        for label in ([None] if classes is None else sorted(set(classes.tolist())))
        if draws
    }
    known = model.known_positions(filled)  # [L]
    given = filled_alone = filled_too = 0.0  # sums of nats
    with scoring(model):
        for index in range(len(images)):
            rows = images.pixels[index : index + 1]  # [1, H, W, C]
            label = None if classes is None else int(classes[index])
            if draws:
                mixed = torch.where(filled.unsqueeze(-1), rows, samples[label])
                rows = torch.cat([rows, mixed])  # [1 + draws, H, W, C]
            labels = labels_of(len(rows), label, model.n_classes)
            nats = [
                model.nll(part.to(device), None if labels is None else labels[: len(part)])
                for part in rows.split(BATCH)
            ]
            by_region = torch.cat(nats).double().cpu()  # [1 + draws, L]
            of_filled = by_region[:, ~known.cpu()].sum(1)  # [1 + draws]
            given += float(by_region[0].sum() - of_filled[0])
            filled_too += float(of_filled[0])
            if draws:
                filled_alone -= float((-of_filled[1:]).logsumexp(0)) - math.log(draws)
            if progress is not None:
                progress(index + 1, len(images))
    n_filled = int(filled.sum())
    bits = math.log(2) * len(images) * images.pixels.shape[-1]
    n_given = filled.numel() - n_filled
    scores = {
        "images": len(images),
        "draws": draws,
        "filled_bits_per_dim": filled_too / (bits * n_filled),
        "filled_alone_bits_per_dim": filled_alone / (bits * n_filled) if draws else None,
        "given_bits_per_dim": given / (bits * n_given) if n_given else None,
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
