"""Training of a classifier of images."""

from functools import partial
from typing import Any

from torch import Tensor

from triptych.core.heads import GivenLogits
from triptych.domains.pictures import config as pictures
from triptych.domains.pictures.data import Batch, ImageDataset
from triptych.domains.vision.config import Config
from triptych.domains.vision.inference import ClassScores
from triptych.domains.vision.model import VisionTransformer, augmented
from triptych.training.engine.module import TrainingModule
from triptych.training.engine.objective import Predictions


class VisionTrainingModule(ClassScores, TrainingModule):
    """Training of a classifier of images, validated by the likelihood of their classes."""

    config: Config

    def __init__(self, config: Config, train: ImageDataset, validation: ImageDataset) -> None:
        vocabulary = train.vocabulary()
        super().__init__(config.build_model(vocabulary), config, vocabulary)

    def training_loss(self, batch: Batch) -> tuple[Tensor, Tensor | int]:
        sizes = self.config.model
        pixels = augmented(batch.pixels, shift=sizes.shift, mirrored=sizes.mirrored)
        return super().training_loss(batch._replace(pixels=pixels))

    def predictions(self, model: VisionTransformer, batch: Batch) -> Predictions:
        labels: Any = batch.labels  # `prepare` has refused images without classes
        return Predictions(model(batch.pixels), GivenLogits(model.n_classes), labels)


prepare = partial(pictures.prepare, VisionTrainingModule)
