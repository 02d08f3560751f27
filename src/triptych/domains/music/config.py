"""Settings of a run on music."""

from dataclasses import dataclass, field

from triptych.domains.music.model import ModelConfig, MusicSettings
from triptych.domains.music.notes import Ids
from triptych.domains.music.sources.base import PieceSource
from triptych.domains.music.sources.midi_folder import MidiFolder
from triptych.training.run.settings import RunSettings
from triptych.types import Checked, FractionBelowOne, NonNegativeInt, PositiveFloat, PositiveInt


@dataclass(frozen=True)
class Augmentation(Checked):
    """Random variation of training pieces (Huang et al. 2018, section 4.2).

    Applied after the split by piece, and never to held-out pieces.
    """

    transpose: NonNegativeInt = 3
    """Largest transposition up or down, in semitones; 0 for none. A piece is transposed only as far
    as it stays in the range of the piano's 88 keys, or of the chorales' 46 pitches."""
    stretch: tuple[float, ...] = (0.95, 0.975, 1.0, 1.025, 1.05)
    """Factors of time, of which one is drawn per performance; chorales are never stretched."""
    reordered_share: FractionBelowOne = 0.0
    """Share of the crops whose voices are written in a random order, the same in all steps of a
    crop; needs `model.voice_orders`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stretch or not all(0.5 <= factor <= 2 for factor in self.stretch):
            raise ValueError(f"stretch needs factors from 0.5 to 2, got {list(self.stretch)}")

    def shifts(self, pitches: Ids, lowest: int, highest: int) -> list[int]:
        """List the transpositions that keep all pitches from lowest to highest.

        0 is always among them, also for a piece that lies outside the range.
        """
        low, high = pitches.min(initial=highest), pitches.max(initial=lowest)
        return [
            shift
            for shift in range(-self.transpose, self.transpose + 1)
            if shift == 0 or (low + shift >= lowest and high + shift <= highest)
        ]


@dataclass(frozen=True)
class DataConfig(Checked):
    """Source of the pieces, their variation, and the windows."""

    source: PieceSource = field(default_factory=lambda: MidiFolder("data/bach"))
    """Source of the pieces, such as MidiFolder or JSBChorales."""
    packed: str | None = None
    """Folder that `triptych pack music` has written, from which training and validation pieces are
    read in place of the source; null for none."""
    sequence_length: PositiveInt = 512
    """Length of a window, in tokens: the most that the model sees at once."""
    overlap: NonNegativeInt = 256
    """Overlap of consecutive windows, in tokens: every scored token has at least this context where
    the piece has it; in sampling, the tokens kept when the window is full."""
    batch_size: PositiveInt = 16
    """Windows in a batch of one process."""
    augmentation: Augmentation = field(default_factory=Augmentation)
    """Random variation of training pieces."""
    infilling_share: FractionBelowOne = 0.0
    """Share of the training windows in which a part of the music is written as one that is made
    anew between its past and its future; needs model.tokenizer.infilling."""
    samples: NonNegativeInt = 1
    """Pieces sampled after each validation; 0 for none."""
    sample_seconds: PositiveFloat = 20.0
    """Length of those pieces, in seconds."""


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on music."""

    data: DataConfig = field(default_factory=DataConfig)
    """Pieces, windows and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes, attention, positions and tokenizer."""

    def __post_init__(self) -> None:
        self.data.source.check(self.model.tokenizer)
        if self.data.infilling_share and not self.model.tokenizer.can_fill:
            raise ValueError(
                f"data.infilling_share is {self.data.infilling_share:g}; expected a tokenizer with "
                "infilling: true, such as RemiTokenizer"
            )
        if self.data.augmentation.reordered_share and not self.model.voice_orders:
            raise ValueError(
                "data.augmentation.reordered_share is "
                f"{self.data.augmentation.reordered_share:g}; expected model.voice_orders: true"
            )
        if self.model.tokenizer.can_fill and self.model.melody is not None:
            raise ValueError("model.melody and a tokenizer with infilling were both given")
        try:
            self.model_settings()
        except ValueError as error:  # it begins with the name of a setting of the windows
            raise ValueError(f"data.{error}") from error

    def model_settings(self) -> MusicSettings:
        return MusicSettings(
            self.model, sequence_length=self.data.sequence_length, overlap=self.data.overlap
        )
