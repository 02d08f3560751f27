"""Training of image models: loss, validation and sample grids."""

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.domains.image.config import Config
from triptych.domains.image.inference import ImageModel
from triptych.domains.image.metrics import ImageScores, histogram_bits_per_dim
from triptych.domains.image.model import ImageTransformer, average_down
from triptych.domains.pictures import config as pictures
from triptych.domains.pictures import render
from triptych.domains.pictures.data import Batch, ImageDataset, check_same_images
from triptych.training.engine.module import ATTENTION, TrainingModule
from triptych.training.engine.objective import Predictions
from triptych.training.finetune.rows import RowMap, same_symbols

LEVEL_WEIGHTS = ("embedding.table.weight", "above.table.weight", "logits.weight", "logits.bias")
"""Ends of the names of weights with a row for each level; a mixture of logistics has none."""


class ImageTrainingModule(ImageScores, TrainingModule):
    """Training of an autoregressive image model, validated by bits per dimension."""

    config: Config

    def __init__(self, config: Config, train: ImageDataset, validation: ImageDataset) -> None:
        vocabulary = train.vocabulary()
        super().__init__(config.build_model(vocabulary), config, vocabulary)
        self.sequence_length = self.model.order.length
        self.examples = validation.first(config.data.samples)
        """Images that a model of super-resolution samples after each validation."""
        histogram = histogram_bits_per_dim(train.pixels, validation.pixels, train.levels)
        print(
            f"{len(train):,} training and {len(validation):,} validation images; baselines in bits "
            f"per dim: uniform over {train.levels} levels {math.log2(train.levels):.2f}, histogram "
            f"per position {histogram:.2f}",
            file=sys.stderr,
        )

    def same_vocabulary(self, other: dict[str, Any]) -> bool:
        return True  # `prepare` has compared them

    def row_maps(self, other: dict[str, Any]) -> list[RowMap]:
        """Return the rows of the nearest level by brightness, and of the classes of equal names.

        A level k of n has the brightness k / (n - 1). No level is new, as neighbouring levels have
        similar weights.
        """
        check_same_images(own := self.metadata["vocabulary"], other)
        before, now = other["levels"], own["levels"]
        nearest = [round(level * (before - 1) / (now - 1)) for level in range(now)]
        weights = tuple(name for name in self.state_dict() if name.endswith(LEVEL_WEIGHTS))
        maps = [RowMap("levels", before, nearest, weights)]
        if self.model.n_classes:
            names = ("model.core.conditioner.classes.weight",)
            maps.append(same_symbols("classes", other["class_names"], own["class_names"], names))
        return maps

    def training_loss(self, batch: Batch) -> tuple[Tensor, Tensor | int]:
        pixels, transformation = self.model.augmented(batch.pixels)  # once, also for teachers
        return super().training_loss(Batch(pixels, batch.labels, transformation))

    def predictions(self, model: ImageTransformer, batch: Batch) -> Predictions:
        features, values = model.features(*batch)  # [B, L, D], [B, L]
        return Predictions(features, model.core.head, values)

    def log_samples(self, folder: Path) -> None:
        """Write a grid of samples at temperature 1, with the same random numbers each time.

        Also the attention weights of a pixel of the first: last layer, mean of all heads. Of a
        model of super-resolution: small images, samples and originals side by side.
        """
        count, seed, model = self.config.data.samples, self.config.run.seed, self.model
        if count == 0:
            return
        trained = ImageModel.of_run(self.config, model, self.metadata["vocabulary"])
        file = folder / "samples.png"
        if model.factor is None:
            pixels = trained.sample(count, seed=seed)  # [N, H, W, C]
            render.write_grid(file, pixels, model.levels, model.n_classes)
            at = [(2 * model.shape[0] // 3, model.shape[1] // 2)]
            title = f"layer {self.config.model.transformer.n_layers}, mean of all heads"
            maps = trained.attention(pixels[0], at)
            drawn = render.PixelAttention(pixels[0], model.levels, at, maps, title=title)
            (folder / ATTENTION).write_bytes(drawn.draw())
        else:
            originals = self.examples.pixels
            small = average_down(originals, model.factor)  # [N, h, w, C]
            labels = self.examples.labels
            of_each = labels.tolist() if model.n_classes and labels is not None else None
            samples = trained.upscale(small.numpy(), labels=of_each, seed=seed)[:, 0]
            columns = [render.repeat(small, model.factor), torch.from_numpy(samples), originals]
            render.write_rows(file, [render.to_bytes(column, model.levels) for column in columns])


prepare = partial(pictures.prepare, ImageTrainingModule)
