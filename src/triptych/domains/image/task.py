"""Training of image models: loss, validation and sample grids."""

import sys
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from triptych.domains.image import metrics
from triptych.domains.image.config import Config
from triptych.domains.image.data import Batch, evaluation_batches, training_batches
from triptych.domains.image.model import ImageTransformer, build_model
from triptych.domains.image.render import class_columns, write_grid
from triptych.errors import UserError
from triptych.training.data import FixedBatches, ResumableLoader
from triptych.training.loggers.media import Media
from triptych.training.module import TrainingModule


class ImageTrainingModule(TrainingModule):
    """Training of an autoregressive image model, validated by bits per dimension."""

    domain: ClassVar[str] = "image"
    monitor: ClassVar[str] = "bits_per_dim"
    model: ImageTransformer
    config: Config

    def __init__(self, config: Config, vocabulary: dict[str, Any]) -> None:
        """vocabulary: of the data, see `ImageDataset.vocabulary`."""
        super().__init__(build_model(config.model, vocabulary), config, vocabulary)

    def same_vocabulary(self, other: dict[str, Any]) -> bool:
        """Return whether weights for another vocabulary fit; classes matter if conditional."""
        names = ["shape", "levels", *(["class_names"] if self.model.n_classes else [])]
        return all(other[name] == self.metadata["vocabulary"][name] for name in names)

    def training_loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Return the mean nats per sub-pixel and the number of sub-pixels."""
        dims = batch.pixels.numel()
        return self.model.nll(batch.pixels, batch.labels).sum() / dims, dims

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Return the sums of `metrics.batch_sums`."""
        return metrics.batch_sums(self.model, batch)

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return bits per dimension from the sums over a split."""
        return metrics.metrics_from_sums(totals)

    def log_samples(self, folder: Path) -> list[Media]:
        """Write a grid of samples at temperature 1, with the same random numbers each time."""
        count, model = self.config.data.samples, self.model
        if count == 0:
            return []
        pixels = model.sample(
            count,
            labels=model.cyclic_labels(count),
            generator=torch.Generator(self.device).manual_seed(self.config.run.seed),
        )  # [N, H, W, C]
        path, columns = folder / "samples.png", class_columns(count, model.n_classes)
        write_grid(path, pixels.cpu(), model.levels, columns=columns)
        caption = f"{count} samples at temperature 1"
        if model.n_classes:
            caption += ", one class after the other"
        return [Media("image", "samples", path=path, caption=caption)]


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[ImageTrainingModule, ResumableLoader, FixedBatches]:
    """Read the images; return the training module and the loaders of training and validation.

    vocabulary: of the weights that initialise the run, see `ImageDataset.vocabulary`. Raises
    UserError for missing or damaged data, for settings that do not fit the images and for images
    that do not fit the weights.
    """
    train, validation = config.data.read("train"), config.data.read("validation")
    if vocabulary is not None:
        here, there = (
            f"{' x '.join(map(str, known['shape']))} with {known['levels']} levels"
            for known in (train.vocabulary(), vocabulary)
        )
        if here != there:
            raise UserError(f"the images are {here}; the weights of run.init_from read {there}")
    if config.model.class_conditional and train.labels is None:
        raise UserError(
            "model.class_conditional is true, but the images have no classes: use images "
            "with classes (sub-folders of an image folder) or set it to false"
        )
    validation = validation.first(config.data.validation_limit)
    torch.manual_seed(config.run.seed)
    try:
        task = ImageTrainingModule(config, train.vocabulary())
    except ValueError as error:  # an attention variant that does not support this shape
        raise UserError(f"the model does not fit the images: {error}") from error
    histogram = metrics.histogram_bits_per_dim(train.pixels, validation.pixels, train.levels)
    print(
        f"{len(train):,} training and {len(validation):,} validation images; baselines in bits "
        f"per dim: uniform over {train.levels} levels "
        f"{metrics.uniform_bits_per_dim(train.levels):.2f}, histogram per position "
        f"{histogram:.2f}",
        file=sys.stderr,
    )
    loader = training_batches(train, batch_size=config.data.batch_size, seed=config.run.seed)
    batches = evaluation_batches(validation, batch_size=config.data.evaluation_batch_size)
    return task, loader, batches
