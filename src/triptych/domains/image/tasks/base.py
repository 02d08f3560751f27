"""Interface of what a run on images trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from triptych.domains.base import TrainedModel
    from triptych.domains.image.config import Config
    from triptych.domains.image.model import ModelConfig
    from triptych.domains.pictures.data import ImageDataset
    from triptych.training.module import TrainingModule


class ImageTask(ABC):
    """What a run trains; subclasses are frozen dataclasses that settings name by class path.

    The modules for training and use are imported when they are needed, so that settings load
    without Lightning.
    """

    @abstractmethod
    def check(self, config: Config) -> None:
        """Raise ValueError for settings of the run that the task does not support."""

    @abstractmethod
    def build_model(self, model: ModelConfig, vocabulary: dict[str, Any]) -> nn.Module:
        """Return a new model for images as in `ImageDataset.vocabulary`."""

    @abstractmethod
    def is_conditional(self, config: Config) -> bool:
        """Return whether the model is conditioned on the image's class."""

    @abstractmethod
    def training_module(
        self, config: Config, train: ImageDataset, validation: ImageDataset
    ) -> TrainingModule:
        """Return the training module with a new model; print facts about the data.

        Raises ValueError for settings that do not fit the images.
        """

    @abstractmethod
    def trained_model(self) -> type[TrainedModel]:
        """Return the class of the trained model."""
