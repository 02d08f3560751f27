"""All settings of a run on music."""

from dataclasses import dataclass, field

from triptych.domains.music.data import DataConfig
from triptych.domains.music.model import ModelConfig, MusicSettings
from triptych.training.run.settings import RunSettings


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on music."""

    data: DataConfig = field(default_factory=DataConfig)
    """Pieces, windows and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes, attention, positions and tokenizer."""

    def __post_init__(self) -> None:
        self.data.source.check(self.model.tokenizer)
        try:
            self.model_settings()
        except ValueError as error:  # it begins with the name of a setting of the windows
            raise ValueError(f"data.{error}") from error

    def model_settings(self) -> MusicSettings:
        return MusicSettings(
            self.model,
            sequence_length=self.data.sequence_length,
            overlap=self.data.overlap,
            lora_alpha=self.run.lora_alpha,
        )
