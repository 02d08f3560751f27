"""Images of the splits of a run, for training and for evaluation, checked against its model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from triptych.domains.options import ScoreRequest
from triptych.domains.pictures.config import DataConfig
from triptych.domains.pictures.data import ImageDataset, check_same_images
from triptych.errors import UserError
from triptych.files.splits import source_to_score
from triptych.training.finetune.rows import OTHER_VOCABULARY
from triptych.training.loading.batches import parts, plan_parts, shuffled
from triptych.training.loading.loader import FixedBatches, ResumableLoader


def read_to_train(
    settings: DataConfig, vocabulary: dict[str, Any] | None, *, classes: bool
) -> tuple[ImageDataset, ImageDataset]:
    """Return the images of train, and those of validation that are scored.

    vocabulary: of the weights that initialise the run, None for new ones. classes: whether the
    model is conditioned on them. Raises UserError for missing or damaged data, for images that do
    not fit the weights, and for images without classes where the model needs them.
    """
    train, validation = settings.read("train"), settings.read("validation")
    if vocabulary is not None:
        check_same_images(train.vocabulary(), vocabulary, classes=classes, hint=OTHER_VOCABULARY)
    if classes and train.labels is None:
        raise UserError(
            "class_conditional is true, but the images have no classes: use images "
            "with classes (sub-folders of an image folder) or set it to false"
        )
    return train, validation.first(settings.validation_limit)


def loaders(
    train: ImageDataset, validation: ImageDataset, settings: DataConfig, *, seed: int
) -> tuple[ResumableLoader, FixedBatches]:
    """Return the loaders of both splits; seed: of the order of the training images."""
    n_parts = len(parts(len(train)))
    plan = plan_parts(len(train), partial(shuffled, batch_size=settings.batch_size), seed=seed)
    loader = ResumableLoader(len(train), plan, train.batch, seed=seed, n_parts=n_parts)
    return loader, validation.fixed_batches(settings.evaluation_batch_size)


def read_to_score(
    settings: DataConfig,
    request: ScoreRequest,
    vocabulary: dict[str, Any],
    *,
    classes: bool,
) -> tuple[DataConfig, ImageDataset]:
    """Return the settings of the data that are scored, and the first `limit` images of a split.

    vocabulary: of the model. classes: whether it knows the classes. Raises UserError for missing
    data and for data that do not fit the model.
    """
    split = request.split
    settings = replace(settings, source=source_to_score(settings.source, split, request.data))
    images = settings.read(split)
    check_same_images(images.vocabulary(), vocabulary, classes=classes)
    return settings, images.first(request.limit)
