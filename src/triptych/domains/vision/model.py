"""Vision Transformer: an encoder reads the patches of an image and a linear layer its mean vector.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", 2010.11929.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.embeddings import ValueEmbedding
from triptych.core.models.encoder_only import SequenceEncoder, TaskHead
from triptych.core.positions import Axial, raster
from triptych.core.transformer import TransformerConfig
from triptych.domains.pictures.config import PictureSettings
from triptych.types import Checked, NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class ModelConfig(Checked):
    """The encoder, its patches and how training images are augmented."""

    transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(positions=Axial())
    )
    """Sizes and parts of the encoder."""
    patch: PositiveInt = 4
    """Side of a patch in pixels; each patch is a position of the encoder."""
    shift: NonNegativeInt = 0
    """Most pixels by which a training image is moved at random to each side; 0 for none."""
    mirrored: bool = False
    """Whether half of the training images, chosen at random, are mirrored left to right."""

    class_conditional: ClassVar[bool] = True  # the images need classes


class PatchEmbedding(ValueEmbedding):
    """A linear layer of the values of a patch, scaled to -1 .. 1 (section 3.1, equation 1).

    size: values of a patch. levels: number of values of a sub-pixel.
    """

    def __init__(self, size: int, levels: int, d_model: int) -> None:
        super().__init__()
        self.value_shape = (size,)
        self.linear = nn.Linear(size, d_model)
        self.register_buffer("scale", torch.tensor(2 / (levels - 1)), persistent=False)

    scale: Tensor

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        scaled = values * self.scale - 1  # [B, N, P]
        vectors: Tensor = self.linear(scaled)  # [B, N, D]
        return vectors


class VisionTransformer(nn.Module):
    """Logits of the classes of images.

    shape: height and width in pixels, channels. levels: number of values of a sub-pixel. Raises
    ValueError for patches that do not tile the image.
    """

    def __init__(
        self, config: ModelConfig, shape: tuple[int, int, int], *, levels: int, n_classes: int
    ) -> None:
        super().__init__()
        height, width, channels = shape
        parts, side = config.transformer, config.patch
        if height % side or width % side:
            raise ValueError(
                f"model.patch is {side}, which does not divide the height {height} and the width "
                f"{width} of the images"
            )
        grid = (height // side, width // side)
        self.shape, self.levels, self.n_classes, self.patch = shape, levels, n_classes, side
        self.encoder = SequenceEncoder(
            PatchEmbedding(side * side * channels, levels, parts.d_model),
            parts.input_positions(raster(grid)),
            parts.encoder(grid),
            parts.dropout,
        )
        self.task_head = TaskHead(parts.d_model, n_classes, dropout=parts.dropout)

    def forward(self, pixels: Tensor) -> Tensor:
        """Images uint8 [B, H, W, C] -> logits [B, n_classes]."""
        vectors = self.encoder(patches(pixels, self.patch))  # [B, N, D]
        logits: Tensor = self.task_head(vectors.mean(1))  # [B, n_classes]
        return logits


def patches(pixels: Tensor, side: int) -> Tensor:
    """Return the patches of images in raster order: [B, H, W, C] -> [B, N, side x side x C]."""
    rows = pixels.unflatten(1, (-1, side)).unflatten(3, (-1, side))  # [B, h, side, w, side, C]
    tiles: Tensor = rows.transpose(2, 3).flatten(3).flatten(1, 2)  # [B, N, side x side x C]
    return tiles


def augmented(pixels: Tensor, *, shift: int, mirrored: bool) -> Tensor:
    """Return images [B, H, W, C], each moved by up to `shift` pixels and mirrored, at random.

    Pixels that come in from outside have the value 0.
    """
    if mirrored:
        turned = torch.rand(len(pixels), device=pixels.device) < 0.5  # [B]
        pixels = torch.where(turned[:, None, None, None], pixels.flip(2), pixels)
    if shift:
        count, height, width, _ = pixels.shape
        padded = F.pad(pixels, (0, 0, shift, shift, shift, shift))  # [B, H + 2s, W + 2s, C]
        moves = torch.randint(2 * shift + 1, (2, count, 1), device=pixels.device)
        rows, columns = (
            move + torch.arange(size, device=pixels.device)  # [B, size]
            for move, size in zip(moves, (height, width), strict=True)
        )
        image = torch.arange(count, device=pixels.device)[:, None, None]  # [B, 1, 1]
        pixels = padded[image, rows[:, :, None], columns[:, None, :]]  # [B, H, W, C]
    return pixels


@dataclass(frozen=True)
class VisionSettings(PictureSettings):
    """What use of a classifier of images needs besides its weights and vocabulary."""

    model: ModelConfig
    network = VisionTransformer
