"""Training on images: the loss, honest bits per dimension, sample grids."""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from triptych.config.schema import from_plain, to_plain
from triptych.domains.image import data
from triptych.domains.image.baselines import histogram_bits_per_dim, uniform_bits_per_dim
from triptych.domains.image.data import Batch, DataConfig
from triptych.domains.image.dataset import ImageDataset
from triptych.domains.image.grid import write_grid
from triptych.domains.image.model import ImageTransformer, ModelConfig
from triptych.errors import UserError
from triptych.training.data import FixedBatches, ResumableLoader
from triptych.training.loggers.media import Media
from triptych.training.metric_sums import in_double
from triptych.training.module import TrainingModule
from triptych.training.optim import OptimConfig
from triptych.training.run_settings import RunConfig


@dataclass(frozen=True)
class Config:
    """All settings of a run on images."""

    data: DataConfig = field(default_factory=DataConfig)
    """Images and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes, attention and output."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimiser and learning rate."""
    run: RunConfig = field(default_factory=RunConfig)
    """Name, place and seed of the run."""


class ImageTask(TrainingModule):
    """An autoregressive model of images, scored in bits per sub-pixel."""

    domain: ClassVar[str] = "image"
    monitor: ClassVar[str] = "bits_per_dim"
    model: ImageTransformer

    def __init__(self, config: Config, data_summary: dict[str, Any]) -> None:
        """data_summary: what the weights know of the data, see `summarize`; JSON types only."""
        classes = data_summary["class_names"]
        model = config.model.build(
            *data_summary["shape"],
            levels=data_summary["levels"],
            n_classes=len(classes) if config.model.class_conditional else 0,
        )
        metadata = {"domain": self.domain, "config": to_plain(config), "vocabulary": data_summary}
        super().__init__(
            model, config.optim, d_model=config.model.transformer.d_model, metadata=metadata
        )
        self.config = config
        self.class_names: tuple[str, ...] = tuple(classes)

    def same_vocabulary(self, other: dict[str, Any]) -> bool:
        """Classes may be others where the model does not know them."""
        told = ["shape", "levels", *(["class_names"] if self.model.classes is not None else [])]
        return all(other[name] == self.metadata["vocabulary"][name] for name in told)

    def training_loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Mean nats per sub-pixel, and the number of sub-pixels."""
        dims = batch.pixels.numel()
        return self.model.nll(batch.pixels, batch.labels).sum() / dims, dims

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Sums of nats, sub-pixels and images."""
        nats = self.model.nll(batch.pixels, batch.labels)  # [B, L]
        return {
            "nats": in_double(nats).sum(),
            "dims": torch.tensor(batch.pixels.numel(), dtype=torch.float64),
            "images": torch.tensor(len(batch.pixels), dtype=torch.float64),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Bits per sub-pixel over everything that was scored."""
        return {"bits_per_dim": totals["nats"] / math.log(2) / totals["dims"]}

    def turn_labels(self, count: int) -> Tensor | None:
        """The classes in turn, int64 [count] on the device; None for an unconditional model."""
        if self.model.classes is None:
            return None
        return torch.arange(count, device=self.device) % self.model.classes.num_embeddings

    def columns(self, count: int) -> int | None:
        """Images in a row of a grid: with few classes, so that each column is a class."""
        classes = len(self.class_names) if self.model.classes is not None else 0
        return classes if 0 < classes <= 16 and classes < count else None

    def log_samples(self, folder: Path) -> list[Media]:
        """A grid of samples at temperature 1, from the same random numbers every time."""
        count = self.config.data.samples
        if count == 0:
            return []
        pixels = self.model.sample(
            count,
            labels=self.turn_labels(count),
            generator=torch.Generator(self.device).manual_seed(self.config.run.seed),
        )
        path = folder / "samples.png"
        write_grid(path, pixels.cpu(), self.model.levels, columns=self.columns(count))
        caption = f"{count} samples at temperature 1"
        if self.model.classes is not None:
            caption += ", the classes in turn"
        return [Media("image", "samples", path=path, caption=caption)]


def summarize(images: ImageDataset) -> dict[str, Any]:
    """What a checkpoint must know of the data: shape (pixels), levels, class names."""
    return {
        "shape": list(images.pixels.shape[1:]),
        "levels": images.levels,
        "class_names": list(images.class_names),
    }


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[ImageTask, ResumableLoader, FixedBatches]:
    """Read the images, build the model and both loaders.

    vocabulary: what the weights that the run starts with know of images, see `summarize`. Raises
    UserError for missing or damaged data, for settings that do not fit the images and for
    images that do not fit the weights.
    """
    train, validation = data.read(config.data, "train"), data.read(config.data, "validation")
    if vocabulary is not None:
        data_summary = summarize(train)
        here, there = (
            f"{' x '.join(map(str, known['shape']))} with {known['levels']} levels"
            for known in (data_summary, vocabulary)
        )
        if here != there:
            raise UserError(
                f"the images are {here}; the weights that the run starts with read {there}"
            )
    if config.model.class_conditional and train.labels is None:
        raise UserError(
            "model.class_conditional is true, but the images have no classes: use images "
            "with classes (sub-folders of a image folder) or set it to false"
        )
    if config.data.validation_limit is not None:
        validation = validation.pick(torch.arange(len(validation))[: config.data.validation_limit])
    torch.manual_seed(config.run.seed)
    try:
        task = ImageTask(config, summarize(train))
    except ValueError as error:  # a variant that cannot serve this shape says so in a sentence
        raise UserError(f"the model does not fit the images: {error}") from error
    histogram = histogram_bits_per_dim(train.pixels, validation.pixels, train.levels)
    print(
        f"{len(train):,} images to train and {len(validation):,} to validate; to beat in bits "
        f"per dim: uniform over {train.levels} levels "
        f"{uniform_bits_per_dim(train.levels):.2f}, a histogram per place {histogram:.2f}",
        file=sys.stderr,
    )
    loader = data.training_batches(train, batch_size=config.data.batch_size, seed=config.run.seed)
    batches = data.evaluation_batches(validation, batch_size=config.data.evaluation_batch_size)
    return task, loader, batches


def restore(checkpoint: dict[str, Any]) -> ImageTask:
    """The task of a checkpoint, without its training data."""
    header = checkpoint["triptych"]
    task = ImageTask(from_plain(Config, header["config"]), header["vocabulary"])
    task.load_state_dict(checkpoint["state_dict"])
    return task
