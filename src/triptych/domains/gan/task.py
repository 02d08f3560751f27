"""Training of a GAN: alternating losses, validation by the Fréchet distance, sample grids."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.domains.gan.config import Config
from triptych.domains.gan.metrics import FrechetScore
from triptych.domains.gan.model import SelfAttentionGan, discriminator_loss, generator_loss
from triptych.domains.pictures.config import loaders, read_to_train
from triptych.domains.pictures.data import Batch, ImageDataset
from triptych.domains.pictures.render import write_grid
from triptych.errors import UserError
from triptych.training.engine.alternating import AlternatingModule, Player
from triptych.training.engine.evaluate import in_double
from triptych.training.engine.module import TrainingModule
from triptych.training.loading.loader import FixedBatches, ResumableLoader


class GanTrainingModule(AlternatingModule):
    """Training of a GAN: on each batch an update of the discriminator, then of the generator.

    The two have different learning rates (two-timescale update rule, Heusel et al. 2017; Zhang et
    al. 2018, section 4.2). Each update draws new noise; generated images have the classes of the
    batch's real images.
    """

    domain = "gan"
    monitor = "fid"
    config: Config
    model: SelfAttentionGan

    def __init__(self, config: Config, train: ImageDataset, validation: ImageDataset) -> None:
        vocabulary = train.vocabulary()
        super().__init__(config.build_model(vocabulary), config, vocabulary)
        self.rate = config.discriminator_rate
        self.fid = FrechetScore(train)
        self.validation = validation
        assert validation.labels is not None
        print(
            f"{len(train):,} training and {len(validation):,} validation images; Fréchet distance "
            "to the training images, on features of a classifier of these data, of the validation "
            f"images {self.fid.distance(validation.pixels):.3f}",
            file=sys.stderr,
        )

    def players(self) -> list[Player]:
        return [
            Player("discriminator", self.model.discriminator, self.rate),
            Player("generator", self.model.generator, 1.0),
        ]

    def player_loss(self, player: str, batch: Batch) -> tuple[Tensor, int]:
        count, model = len(batch.pixels), self.model
        labels = model.classes_of(batch.labels)
        with torch.set_grad_enabled(player == "generator"):
            generated = model.generator(model.noise(count), labels)  # [B, C, H, W]
        if player == "generator":
            return generator_loss(model.discriminator(generated, labels)), count
        both = torch.cat([model.to_reals(batch.pixels), generated])  # [2 B, C, H, W]
        twice = None if labels is None else torch.cat([labels, labels])
        real, false = model.discriminator(both, twice).chunk(2)  # [B] each
        return discriminator_loss(real, false), count

    def score(self, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of the discriminator's logits of real images, and their number."""
        labels = self.model.classes_of(batch.labels)
        logits = self.model.discriminator(self.model.to_reals(batch.pixels), labels)
        return {
            "logits": in_double(logits).sum(),
            "images": torch.tensor(len(batch.pixels), dtype=torch.float64),
        }

    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        return {"discriminator_logit": totals["logits"] / totals["images"]}

    def generation_metrics(self) -> dict[str, float]:
        """Return the Fréchet distance of as many samples as validation images, of their classes."""
        self.model.update_statistics()
        samples = self._sample(len(self.validation), self.model.classes_of(self.validation.labels))
        return {"fid": self.fid.distance(samples)}

    def log_samples(self, folder: Path) -> None:
        """Write a grid of samples, from the same noise each time; after `generation_metrics`."""
        if count := self.config.data.samples:
            samples = self._sample(count, self.model.cyclic_labels(count))
            write_grid(folder / "samples.png", samples, self.model.levels, self.model.n_classes)

    def _sample(self, count: int, labels: Tensor | None) -> Tensor:
        generator = torch.Generator().manual_seed(self.config.run.seed)
        return self.model.sample(count, labels=labels, generator=generator).cpu()

    def same_vocabulary(self, other: dict[str, Any]) -> bool:
        return True  # `prepare` has compared them


def prepare(
    config: Config, vocabulary: dict[str, Any] | None = None
) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
    """As `Domain.prepare`.

    Raises UserError as `read_to_train`, for images without classes, and for sizes that do not fit.
    """
    classes = config.model.class_conditional
    train, validation = read_to_train(config.data, vocabulary, classes=classes)
    torch.manual_seed(config.run.seed)
    try:
        task = GanTrainingModule(config, train, validation)
    except ValueError as error:
        raise UserError(f"the model does not fit the images: {error}") from error
    return task, *loaders(train, validation, config.data, seed=config.run.seed)
