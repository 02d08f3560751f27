"""Settings of a run on images, and of the use of its model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from triptych.core.heads import Categorical, HeadConfig
from triptych.core.positions import Axial
from triptych.core.transformer import TransformerConfig
from triptych.domains.image.model import ImageTransformer
from triptych.domains.pictures.config import DataConfig
from triptych.training.run.settings import ModelSettings, RunSettings
from triptych.types import Checked, IntAboveOne, PositiveInt


@dataclass(frozen=True)
class SuperResolution(Checked):
    """An encoder of the image averaged down (Parmar et al. 2018, section 5.3)."""

    factor: IntAboveOne | None = None
    """Height of the image over that of the small one, and width likewise; null for no encoder."""
    n_layers: PositiveInt = 2
    """Blocks of the encoder, with full attention and the decoder's other sizes."""

    def small_shape(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return height, width and channels of the small image of an image.

        Raises ValueError where the factor does not divide height and width.
        """
        height, width, channels = shape
        if self.factor is None or height % self.factor or width % self.factor:
            raise ValueError(
                f"super_resolution.factor {self.factor} does not divide the height {height} and "
                f"the width {width} of the images"
            )
        return height // self.factor, width // self.factor, channels


@dataclass(frozen=True)
class ModelConfig:
    """The decoder, its output distribution, and whether it is conditioned on a class."""

    transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(positions=Axial())
    )
    """Sizes and parts of the decoder."""
    head: HeadConfig = field(default_factory=Categorical)
    """Categorical (a softmax per sub-pixel) or MixtureOfLogistics (one position per pixel)."""
    class_conditional: bool = False
    """Add a learned embedding of the image's class at every position."""
    super_resolution: SuperResolution = field(default_factory=SuperResolution)
    """Encoder of the image averaged down, on which the model is conditioned."""


@dataclass(frozen=True)
class ImageSettings(ModelSettings):
    """What use of an image model needs besides its weights and vocabulary."""

    model: ModelConfig
    """Transformer, output distribution and classes."""
    bits: int | None = None
    """Bits kept of each 8-bit value of a picture; null where all levels are kept."""

    def build_model(self, vocabulary: dict[str, Any]) -> nn.Module:
        """Return a new model for images as in `ImageDataset.vocabulary`."""
        n_classes = len(vocabulary["class_names"]) if self.model.class_conditional else 0
        shape, levels = tuple(vocabulary["shape"]), vocabulary["levels"]
        return ImageTransformer(self.model, shape, levels=levels, n_classes=n_classes)


@dataclass(frozen=True)
class Config(RunSettings):
    """All settings of a run on images."""

    data: DataConfig = field(default_factory=DataConfig)
    """Images and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Transformer, output distribution and classes."""

    def model_settings(self) -> ImageSettings:
        return ImageSettings(
            self.model, bits=self.data.bits, lora_alpha=self.run.finetune.lora_alpha
        )
