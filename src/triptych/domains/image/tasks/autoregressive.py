"""Autoregressive image models (Parmar et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from triptych.domains.image.model import ImageTransformer, ModelConfig
from triptych.domains.image.tasks.base import ImageTask

if TYPE_CHECKING:
    from triptych.domains.base import TrainedModel
    from triptych.domains.image.config import Config
    from triptych.domains.pictures.data import ImageDataset
    from triptych.training.module import TrainingModule


@dataclass(frozen=True)
class Autoregressive(ImageTask):
    """Predict each sub-pixel from those before it; the sizes are the settings of `model`."""

    def check(self, config: Config) -> None:
        return None

    def build_model(self, model: ModelConfig, vocabulary: dict[str, Any]) -> nn.Module:
        n_classes = len(vocabulary["class_names"]) if model.class_conditional else 0
        shape, levels = tuple(vocabulary["shape"]), vocabulary["levels"]
        return ImageTransformer(model, shape, levels=levels, n_classes=n_classes)

    def is_conditional(self, config: Config) -> bool:
        return config.model.class_conditional

    def training_module(
        self, config: Config, train: ImageDataset, validation: ImageDataset
    ) -> TrainingModule:
        from triptych.domains.image.task import ImageTrainingModule, print_baselines

        examples = validation.first(config.data.samples)
        module = ImageTrainingModule(config, train.vocabulary(), examples)
        print_baselines(train, validation)
        return module

    def trained_model(self) -> type[TrainedModel]:
        from triptych.domains.image.inference import ImageModel

        return ImageModel
