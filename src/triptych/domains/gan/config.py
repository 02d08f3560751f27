"""Settings of a run of a GAN, and of the use of its model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from triptych.domains.gan.model import REDUCTION, SelfAttentionGan
from triptych.domains.pictures.config import DataConfig
from triptych.training.run.settings import ModelSettings, RunSettings
from triptych.types import Checked, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class ModelConfig(Checked):
    """Sizes of a generator and a discriminator with self-attention at one feature map."""

    latent: PositiveInt = 64
    """Numbers of the normal noise from which an image is generated."""
    channels: PositiveInt = 64
    """Channels of every feature map."""
    n_blocks: PositiveInt = 1
    """Blocks of the generator that double height and width, and of the discriminator that halve
    them; the image's sides must be multiples of 2^n_blocks."""
    attention_side: PositiveInt | None = 8
    """Height in positions of the feature map with self-attention, in both networks; null for
    none."""
    class_conditional: bool = True
    """Condition both networks on the image's class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention_side is not None and self.channels < REDUCTION:
            raise ValueError(
                f"channels is {self.channels}; self-attention, whose width is an eighth of it, "
                f"needs at least {REDUCTION} (attention_side null: none)"
            )

    def build(self, vocabulary: dict[str, Any]) -> SelfAttentionGan:
        """Return new networks for images as in `ImageDataset.vocabulary`."""
        height, width, channels = vocabulary["shape"]
        n_classes = len(vocabulary["class_names"]) if self.class_conditional else 0
        shape, levels = (height, width, channels), vocabulary["levels"]
        return SelfAttentionGan(self, shape, levels=levels, n_classes=n_classes)


@dataclass(frozen=True)
class GanSettings(ModelSettings):
    """What use of a GAN needs besides its weights and vocabulary."""

    model: ModelConfig
    """Sizes of the networks."""

    def build_model(self, vocabulary: dict[str, Any]) -> SelfAttentionGan:
        return self.model.build(vocabulary)


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run of a GAN."""

    data: DataConfig = field(default_factory=DataConfig)
    """Images, which need classes, and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes of generator and discriminator."""
    discriminator_rate: PositiveFloat = 4.0
    """Learning rate of the discriminator, as a multiple of optim.learning_rate, which is the
    generator's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optim.optimizer.needs_blocks or self.optim.schedule.needs_width:
            raise ValueError(
                "optim.optimizer Muon and optim.schedule Noam are for Transformers; for a GAN use "
                "optimizer Adam, and schedule Constant"
            )
        if self.run.compute.compile:
            raise ValueError("run.compute.compile is true, which a GAN does not support")

    def model_settings(self) -> GanSettings:
        return GanSettings(self.model, lora_alpha=self.run.finetune.lora_alpha)
