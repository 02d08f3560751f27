"""A trained classifier of images in use, and the simple models that it is compared with."""

from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.core.heads import cross_entropy
from triptych.domains.base import TrainedModel
from triptych.domains.options import ScoreRequest, counted
from triptych.domains.pictures.config import read_to_score
from triptych.domains.pictures.data import Batch, ImageDataset, leaks, reading_of
from triptych.domains.pictures.given import read_pictures
from triptych.domains.vision.domain import LABELS, VisionSampleOptions
from triptych.domains.vision.model import VisionSettings, VisionTransformer
from triptych.errors import UserError
from triptych.files.results import OutputFolder
from triptych.files.splits import ALL
from triptych.training.engine.devices import device_of, scoring
from triptych.training.engine.evaluate import Evaluation, in_double, sum_scores
from triptych.types import Progress

BATCH = 256
"""Images classified at once."""


class ClassScores:
    """Sums over a batch and their ratios, for the training module and the trained model."""

    domain: ClassVar[str] = "vision"
    monitor: str = "nats_per_image"
    model: Any  # VisionTransformer

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Return the sums over a batch, float64 scalars: nats, right classes and images."""
        labels: Any = batch.labels
        logits = self.model(batch.pixels)  # [B, n_classes]
        right = logits.argmax(-1) == labels  # [B]
        return {
            "nats": in_double(cross_entropy(logits, labels)).sum(),
            "correct": in_double(right).sum(),
            "images": in_double(right.new_ones(len(right))).sum(),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return nats_per_image and accuracy from the sums over a split."""
        count = totals["images"]
        return {"nats_per_image": totals["nats"] / count, "accuracy": totals["correct"] / count}


class VisionModel(ClassScores, TrainedModel):
    """A trained classifier; vocabulary: of its data, as in `ImageDataset.vocabulary`."""

    settings_class = VisionSettings
    settings: VisionSettings
    full_model: VisionTransformer

    def classify(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the probability of each class: images uint8 [N, H, W, C] -> [N, n_classes]."""
        with scoring(self.model), torch.no_grad():
            device = device_of(self.model)
            parts = torch.from_numpy(pixels).split(BATCH)
            logits = torch.cat([self.model(part.to(device)).float().cpu() for part in parts])
        shares: NDArray[np.float32] = logits.softmax(-1).numpy()
        return shares

    def score_split(self, request: ScoreRequest, progress: Progress | None = None) -> Evaluation:
        """Return accuracy and nats per image of a split, and the accuracy of simple models.

        Raises UserError for missing data and for data that do not fit the model.
        """
        settings, images = read_to_score(self.data_settings, request, self.vocabulary, classes=True)
        if images.labels is None:
            raise UserError("a score of classes needs images with classes; these have none")
        size = request.batch_size or settings.evaluation_batch_size
        totals = sum_scores(self.model, self.score, images.fixed_batches(size), progress)
        details: dict[str, Any] = {"dtype": self.dtype}
        with suppress(UserError):  # the training images may be missing
            train = self.data_settings.read("train")
            if request.split != ALL:
                details["simple_models"] = simple_accuracies(train, images)
            for leak in leaks(train, {request.split: images}):
                details |= leak.details()
        return Evaluation(self.domain, request.split, self.metrics(totals), len(images), details)

    def write_samples(self, options: VisionSampleOptions, out: OutputFolder) -> str:
        model, names = self.full_model, self.vocabulary["class_names"]
        reading = reading_of(self.vocabulary)
        pictures = read_pictures(options.pictures, [model.shape], model.levels, reading)
        shares = self.classify(torch.stack([*pictures.values()]).numpy())  # [N, n_classes]
        rows = (
            f"{file}\t{names[row.argmax()]}\t{row.max():.4f}\n"
            for file, row in zip(pictures, shares, strict=True)
        )
        written = out.write(LABELS, "".join(rows).encode())
        return f"{counted(len(pictures), 'label', 'labels')} in {written}"


restore = VisionModel.restore


def simple_accuracies(train: ImageDataset, images: ImageDataset) -> dict[str, float]:
    """Return the accuracy of simple models that compare pixels by their Euclidean distance.

    nearest_mean: the class whose mean training image is nearest. nearest_image: the class of the
    nearest training image.
    """
    labels, expected = train.labels, images.labels
    assert labels is not None
    assert expected is not None
    known = train.pixels.flatten(1).float()  # [M, P]
    means = torch.stack([known[labels == each].mean(0) for each in labels.unique()])  # [K, P]
    found: dict[str, list[Tensor]] = {"nearest_mean": [], "nearest_image": []}
    for part in images.pixels.flatten(1).float().split(BATCH):  # [B, P]
        found["nearest_mean"].append(labels.unique()[torch.cdist(part, means).argmin(1)])
        found["nearest_image"].append(labels[torch.cdist(part, known).argmin(1)])
    return {
        name: float((torch.cat(chosen) == expected).double().mean())
        for name, chosen in found.items()
    }
