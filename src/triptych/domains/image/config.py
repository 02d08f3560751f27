"""Settings of a run on images."""

from dataclasses import dataclass, field

from triptych.domains.image.model import ImageSettings, ModelConfig
from triptych.domains.image.tasks.autoregressive import Autoregressive
from triptych.domains.image.tasks.base import ImageTask
from triptych.domains.pictures.config import DataConfig
from triptych.training.run_config import RunSettings


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on images."""

    data: DataConfig = field(default_factory=DataConfig)
    """Images and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Transformer, output distribution and classes."""

    task: ImageTask = field(default_factory=Autoregressive)
    """What is trained, by class path: Autoregressive, a Transformer over pixels with the sizes of
    `model`, or Gan, with sizes of its own."""

    def __post_init__(self) -> None:
        self.task.check(self)

    def model_settings(self) -> ImageSettings:
        return ImageSettings(
            self.model, self.task, bits=self.data.bits, lora_alpha=self.run.lora_alpha
        )
