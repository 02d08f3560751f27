"""Settings of the images of a run."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn

from triptych.config.schema import to_plain
from triptych.domains.options import ScoreRequest
from triptych.domains.pictures.data import (
    SPLITS,
    ImageDataset,
    check_same_images,
    concatenate,
    leaks,
    read_pack,
)
from triptych.domains.pictures.sources import Digits, ImageSource
from triptych.errors import UserError
from triptych.files.leaks import warn_of_leaks
from triptych.files.splits import ALL, source_to_score
from triptych.training.finetune.rows import OTHER_VOCABULARY
from triptych.training.loading.batches import parts, plan_parts, shuffled
from triptych.training.loading.loader import FixedBatches, ResumableLoader
from triptych.training.loading.packed import PackWriter
from triptych.training.run.checkpoint import ModelSettings
from triptych.types import Checked, NonNegativeInt, PositiveInt

Module = TypeVar("Module")

COMPARED = {False: ("levels",), True: ("levels", "class_names")}
"""What new images must have as the training's, for models without and with classes."""


@dataclass(frozen=True)
class DataConfig(Checked):
    """Source, levels and batch sizes of the images."""

    source: ImageSource = field(default_factory=Digits)
    """Source of the images: Digits, MNIST, CIFAR10 or ImageFolder."""
    packed: str | None = None
    """Folder that `triptych pack image` has written, from which training and validation images are
    read in place of the source, with the bits of the pack; null for none."""
    bits: int | None = None
    """Bits kept of each 8-bit value, 1 to 7; null keeps all levels of the source."""
    batch_size: PositiveInt = 64
    """Images per training batch of one process."""
    evaluation_batch_size: PositiveInt = 64
    """Images per validation batch; no effect on the result."""
    validation_limit: PositiveInt | None = None
    """Number of validation images scored in training; null scores all."""
    samples: NonNegativeInt = 20
    """Images sampled after each validation, 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits is not None and not 1 <= self.bits <= 7:
            raise ValueError(f"bits must be from 1 to 7, or null for all levels, got {self.bits}")

    def stream(self, split: str) -> Iterator[ImageDataset]:
        """Yield the images of a split in parts, from the source."""
        for images in self.source.stream(split):
            yield images if self.bits is None else images.quantize(self.bits)

    def read(self, split: str) -> ImageDataset:
        """Return the images of a split, or of all splits, with the configured number of levels.

        Raises UserError for an unknown split and for missing or damaged data.
        """
        if split not in (ALL, *SPLITS):
            raise UserError(
                f"images have the splits train, validation and test, and all for a folder given "
                f"with --data; got {split!r}"
            )
        if self.packed is not None and split in ("train", "validation"):
            return read_pack(self.packed, split)
        return concatenate([*self.stream(split)])


@dataclass(frozen=True)
class PictureSettings(ModelSettings):
    """What use of a model of images needs besides its weights and vocabulary."""

    network: ClassVar[Callable[..., nn.Module]]
    """Makes a model of its sizes and the shape of images, with their levels and classes."""

    def build_model(self, vocabulary: dict[str, Any]) -> nn.Module:
        n_classes = len(vocabulary["class_names"]) if self.model.class_conditional else 0
        shape, levels = tuple(vocabulary["shape"]), vocabulary["levels"]
        return type(self).network(self.model, shape, levels=levels, n_classes=n_classes)


def prepare(
    module: Callable[[Any, ImageDataset, ImageDataset], Module], config: Any, vocabulary: Any = None
) -> tuple[Module, ResumableLoader, FixedBatches]:
    """As `Domain.prepare`, for a module that is made of settings and the images of both splits.

    Logs which held-out images are training images, for data that are not packed. Raises UserError
    also for images that do not fit the weights, and without classes where the model needs them.
    """
    data, classes, seed = config.data, config.model.class_conditional, config.run.seed
    train, validation = data.read("train"), data.read("validation")
    if data.packed is None:
        held_out = {"validation": validation}
        with suppress(UserError):  # without test images there is nothing to say about them
            held_out["test"] = data.read("test")
        warn_of_leaks(leaks(train, held_out))
    if vocabulary is not None:
        check_same_images(train.vocabulary(), vocabulary, *COMPARED[classes], hint=OTHER_VOCABULARY)
    if classes and train.labels is None:
        raise UserError(
            "class_conditional is true, but the images have no classes: use images "
            "with classes (sub-folders of an image folder) or set it to false"
        )
    validation = validation.first(data.validation_limit)
    torch.manual_seed(seed)
    task = module(config, train, validation)
    n_parts = len(parts(len(train)))
    plan = plan_parts(len(train), partial(shuffled, batch_size=data.batch_size), seed=seed)
    loader = ResumableLoader(len(train), plan, train.batch, seed=seed, n_parts=n_parts)
    return task, loader, validation.fixed_batches(data.evaluation_batch_size)


def read_to_score(
    settings: DataConfig, request: ScoreRequest, vocabulary: dict[str, Any], *, classes: bool
) -> tuple[DataConfig, ImageDataset]:
    """Return the settings of the data that are scored, and the first `limit` images of a split.

    vocabulary: of the model. classes: whether it knows the classes. Raises UserError for missing
    data and for data that do not fit the model.
    """
    split = request.split
    settings = replace(settings, source=source_to_score(settings.source, split, request.data))
    images = settings.read(split)
    check_same_images(images.vocabulary(), vocabulary, *COMPARED[classes])
    return settings, images.first(request.limit)


def pack(config: Any, writer: PackWriter) -> str:
    """Write the training and validation images; return a sentence about them."""
    counts, vocabulary = {"train": 0, "validation": 0}, {}
    for split in counts:
        for part in config.data.stream(split):
            vocabulary = part.vocabulary()
            writer.append(f"{split}.pixels", part.pixels.numpy())
            if part.labels is not None:
                writer.append(f"{split}.labels", part.labels.numpy().astype(np.int64))
            counts[split] += len(part)
    about = {"domain": "image", "data": to_plain(config.data)}
    writer.finish({**about, "vocabulary": vocabulary, "counts": counts})
    return f"{counts['train']:,} training images"
