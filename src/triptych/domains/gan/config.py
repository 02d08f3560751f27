"""Settings of a run of a GAN."""

from dataclasses import dataclass, field

from triptych.domains.gan.model import GanSettings, ModelConfig
from triptych.domains.pictures.config import DataConfig
from triptych.training.run.settings import RunSettings
from triptych.types import PositiveFloat


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

    opening = GanSettings

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optim.optimizer.needs_blocks or self.optim.schedule.needs_width:
            raise ValueError(
                "optim.optimizer Muon and optim.schedule Noam are for Transformers; for a GAN use "
                "optimizer Adam, and schedule Constant"
            )
        if self.run.compute.compile:
            raise ValueError("run.compute.compile is true, which a GAN does not support")
