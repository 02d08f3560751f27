"""Settings of a run on images."""

from dataclasses import dataclass, field

from triptych.domains.image.model import ImageSettings, ModelConfig
from triptych.domains.pictures.config import DataConfig
from triptych.training.run.settings import RunSettings


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on images."""

    data: DataConfig = field(default_factory=DataConfig)
    """Images and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Transformer, output distribution and classes."""

    opening = ImageSettings
