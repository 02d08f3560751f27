"""All settings of a run on music."""

from dataclasses import dataclass, field

from triptych.core.models.decoder_only import DecoderOnly
from triptych.domains.music.data import DataConfig
from triptych.domains.music.model import ModelConfig
from triptych.training.run_config import RunSettings


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on music."""

    data: DataConfig = field(default_factory=DataConfig)
    """Pieces, windows and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes, attention and positions."""

    def build_model(self) -> DecoderOnly:
        """Build the model for the tokenizer and the windows of the data.

        Raises ValueError for settings that do not fit together.
        """
        return self.model.build(self.data.source.tokenizer, length=self.data.sequence_length)
