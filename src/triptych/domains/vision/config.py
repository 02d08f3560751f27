"""Settings of a run that classifies images."""

from dataclasses import dataclass, field

from triptych.domains.pictures.config import DataConfig
from triptych.domains.vision.model import ModelConfig, VisionSettings
from triptych.training.run.settings import RunSettings


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run that classifies images."""

    data: DataConfig = field(default_factory=DataConfig)
    """Images, which need classes, and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Encoder and patches."""

    opening = VisionSettings
