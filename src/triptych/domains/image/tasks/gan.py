"""Settings of a Self-Attention GAN (Zhang et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from triptych.domains.image.gan.networks import REDUCTION, SelfAttentionGan
from triptych.domains.image.model import ModelConfig
from triptych.domains.image.tasks.base import ImageTask
from triptych.errors import at_least

if TYPE_CHECKING:
    from triptych.domains.base import TrainedModel
    from triptych.domains.image.config import Config
    from triptych.domains.pictures.data import ImageDataset
    from triptych.training.module import TrainingModule


@dataclass(frozen=True)
class Gan(ImageTask):
    """Train a generator and a discriminator with self-attention at one feature map."""

    latent: int = 64
    """Numbers of the normal noise from which an image is generated."""
    channels: int = 64
    """Channels of every feature map."""
    n_blocks: int = 1
    """Blocks of the generator that double height and width, and of the discriminator that halve
    them; the image's sides must be multiples of 2^n_blocks."""
    attention_side: int | None = 8
    """Height in positions of the feature map with self-attention, in both networks; null for
    none."""
    class_conditional: bool = True
    """Condition both networks on the image's class."""
    discriminator_rate: float = 4.0
    """Learning rate of the discriminator, as a multiple of optim.learning_rate, which is the
    generator's."""

    def __post_init__(self) -> None:
        at_least(self, 1, "latent", "channels", "n_blocks", "attention_side")
        if not 0 < self.discriminator_rate < float("inf"):
            raise ValueError(f"discriminator_rate is {self.discriminator_rate}; must be above 0")
        if self.attention_side is not None and self.channels < REDUCTION:
            raise ValueError(
                f"channels is {self.channels}; self-attention, whose width is an eighth of it, "
                f"needs at least {REDUCTION} (attention_side null: none)"
            )

    def check(self, config: Config) -> None:
        if config.model != ModelConfig():
            raise ValueError(
                "model has settings of a Transformer, but task is Gan; its sizes are in "
                "task.init_args: leave model out"
            )
        if config.optim.optimizer.needs_blocks or config.optim.schedule.needs_width:
            raise ValueError(
                "optim.optimizer Muon and optim.schedule Noam are for Transformers; task is Gan: "
                "use optimizer Adam, and schedule Constant"
            )
        if config.run.compile:
            raise ValueError("run.compile is true, which task Gan does not support")

    def build_model(self, model: ModelConfig, vocabulary: dict[str, Any]) -> nn.Module:
        height, width, channels = vocabulary["shape"]
        return SelfAttentionGan(
            (height, width, channels),
            levels=vocabulary["levels"],
            n_classes=len(vocabulary["class_names"]) if self.class_conditional else 0,
            latent=self.latent,
            channels=self.channels,
            n_blocks=self.n_blocks,
            attention_side=self.attention_side,
        )

    def is_conditional(self, config: Config) -> bool:
        return self.class_conditional

    def training_module(
        self, config: Config, train: ImageDataset, validation: ImageDataset
    ) -> TrainingModule:
        from triptych.domains.image.gan.training import GanTrainingModule

        return GanTrainingModule(config, train, validation)

    def trained_model(self) -> type[TrainedModel]:
        from triptych.domains.image.gan.inference import GanModel

        return GanModel
