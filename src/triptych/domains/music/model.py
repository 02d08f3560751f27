"""Settings of the music model: a causal Transformer over tokens of music."""

from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from triptych.core.attention.base import AttentionConfig
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.embeddings import TokenEmbedding
from triptych.core.heads import Categorical
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import Cycles, NoPosition, Sinusoid, Sum
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.representation import Representation


@dataclass(frozen=True)
class ModelConfig(TransformerConfig):
    """Sizes of the model and how it knows where in the music it is."""

    n_layers: int = 6
    """Number of blocks."""
    d_model: int = 256
    """Width of the model, in features."""
    n_heads: int = 8
    """Number of attention heads; divides d_model."""
    d_ff: int = 1024
    """Width of the feed-forward layers, in features."""
    attention: AttentionConfig = field(default_factory=Relative)
    """Self-attention variant, by class path and settings; relative as in Music Transformer."""
    positions: Literal["auto", "sinusoid", "none"] = "auto"
    """Code of the place in the window: auto takes none beside relative attention, which knows
    distances itself, and sinusoids beside any other."""
    voices: bool | None = None
    """Add a learned embedding of the voice that is to come (chorales only); null for as `metre`,
    which stood for both before this setting was there."""
    metre: bool = True
    """Add learned embeddings of the 16th in the quarter and in the bar (chorales only)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positions not in ("auto", "sinusoid", "none"):
            raise ValueError(f"positions must be auto, sinusoid or none, got {self.positions!r}")

    def build(self, representation: Representation, *, length: int) -> DecoderOnly:
        """Make the model for windows of `length` tokens."""
        return DecoderOnly(
            TokenEmbedding(representation.vocabulary_size, self.d_model),
            self._positions(representation),
            self.decoder((length,)),
            Categorical().build(self.d_model, levels=representation.vocabulary_size, channels=1),
            d_model=self.d_model,
            dropout=self.dropout,
        )

    def _positions(self, representation: Representation) -> nn.Module:
        sinusoid = self.positions == "sinusoid" or (
            self.positions == "auto" and not isinstance(self.attention, (Relative, PitchTime))
        )
        parts: list[nn.Module] = [Sinusoid(self.d_model)] if sinusoid else []
        voices = self.metre if self.voices is None else self.voices
        cycles = representation.voices if voices else ()
        cycles += representation.metre if self.metre else ()
        if cycles:
            parts.append(Cycles(self.d_model, cycles))
        return Sum(parts) if parts else NoPosition(self.d_model)
