"""Image Transformer: a decoder over the sub-pixels or pixels of an image in one generation order.

Parmar et al. 2018, "Image Transformer", 1802.05751. The attention variant determines the order,
which training, sampling and likelihoods share.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from triptych.core.attention.full import Full
from triptych.core.embeddings import ChannelEmbedding, PixelEmbedding, ValueEmbedding
from triptych.core.heads import Categorical, HeadConfig, MixtureOfLogistics
from triptych.core.models.base import Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import Axial, raster
from triptych.core.transformer import TransformerConfig
from triptych.decoding.generate import generate, on_model
from triptych.decoding.given import resample
from triptych.decoding.sampling import Given, SampleRequest, part_of
from triptych.domains.image.conditioner import (
    ImageConditioner,
    NeighbourValues,
    PixelsAbove,
    SmallImage,
    Squares,
    transformed,
)
from triptych.domains.pictures.config import PictureSettings
from triptych.types import Checked, IntAboveOne, PositiveInt

Augmentation = Literal["mirrored", "square"]
TRANSFORMATIONS: dict[Augmentation, int] = {"mirrored": 2, "square": 8}
"""Number of transformations, see `transformed`; the first is none."""
SAMPLE_BATCH = 64
"""Images sampled together; constant, so that a seed gives the same images on every machine."""


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
    pixels_above: bool = False
    """Add learned vectors of the values of the three pixels above to the input of each position."""
    augmentation: Augmentation | None = None
    """Training images are transformed at random, and a learned vector tells the model how (Jun et
    al. 2020): mirrored left to right, or all 8 turns and mirrorings of a square; null for none.
    Samples and scores are of images as they are."""


class ImageTransformer(nn.Module):
    """A decoder over images as sequences in a generation order.

    shape: height and width in pixels, channels. levels: number of values of a sub-pixel.
    n_classes: number of class embeddings, added at every position (section 5.2); 0 for an
    unconditional model. A position is a sub-pixel, or a whole pixel with a mixture of logistics.
    A model of super-resolution is conditioned on the image averaged down, which an encoder reads.
    Raises ValueError for an attention variant or a factor that does not support the shape.
    """

    def __init__(
        self, config: ModelConfig, shape: tuple[int, int, int], *, levels: int, n_classes: int = 0
    ) -> None:
        super().__init__()
        height, width, channels = shape
        transformer, d_model = config.transformer, config.transformer.d_model
        self.whole_pixels = config.head.whole_pixels
        grid = (height, width, 1 if self.whole_pixels else channels)
        self.shape, self.levels, self.n_classes = shape, levels, n_classes
        self.order = transformer.attention.order_of(grid)
        embedding: ValueEmbedding
        if self.whole_pixels:
            embedding = PixelEmbedding(levels, channels, d_model)
        else:
            embedding = ChannelEmbedding(levels, self.order.coordinates[:, 2], d_model)
        self.factor = config.super_resolution.factor
        small = squares = None
        if self.factor is not None:
            rows, columns, _ = config.super_resolution.small_shape(shape)
            parts = replace(transformer, attention=Full(), positions=Axial())
            parts = replace(parts, n_layers=config.super_resolution.n_layers)
            encoder = SequenceEncoder(
                PixelEmbedding(levels, channels, d_model),
                parts.input_positions(raster((rows, columns))),
                parts.encoder((rows, columns)),
                parts.dropout,
            )
            squares = Squares(self.order, self.factor, channels, levels)
            small = SmallImage(encoder, squares, d_model)
        term = None
        if isinstance(config.head, MixtureOfLogistics) and config.head.neighbours:
            term = NeighbourValues(self.order, levels, squares)
        above = PixelsAbove(self.order, channels, levels, d_model) if config.pixels_above else None
        self.core = DecoderOnly(
            embedding,
            transformer.input_positions(self.order),
            transformer.decoder(grid, cross=self.factor is not None),
            config.head.build(d_model, levels, channels, term.width if term else 0),
            d_model=d_model,
            dropout=transformer.dropout,
            conditioner=ImageConditioner(small, above, embedding.value_shape),
            term=term,
        )
        if n_classes:
            # Made here, because the order of the random numbers decides the weights of a seed.
            self.conditioner.classes = nn.Embedding(n_classes, d_model)
            nn.init.normal_(self.conditioner.classes.weight, std=d_model**-0.5)
        if config.augmentation is not None:
            if config.augmentation == "square" and height != width:
                raise ValueError(
                    f"augmentation square needs images as high as wide, got {height} by {width} "
                    "pixels; mirrored serves all"
                )
            self.conditioner.transformations = nn.Embedding(
                TRANSFORMATIONS[config.augmentation], d_model, padding_idx=0
            )
            nn.init.zeros_(self.conditioner.transformations.weight)

    @property
    def conditioner(self) -> ImageConditioner:
        """What makes the conditions of the core."""
        conditioner = self.core.conditioner
        assert isinstance(conditioner, ImageConditioner)
        return conditioner

    def to_sequence(self, pixels: Tensor) -> Tensor:
        """Return images [B, H, W, C] in generation order: int64 [B, L], or [B, L, C]."""
        pixels = pixels.long()
        if self.whole_pixels:
            pixels = pixels.unsqueeze(3)  # [B, H, W, 1, C]
        return self.order.to_sequence(pixels)  # [B, L] or [B, L, C]

    def to_images(self, sequence: Tensor) -> Tensor:
        """Return the images of sequences, the inverse of `to_sequence`: uint8 [B, H, W, C]."""
        pixels = self.order.to_images(sequence)  # [B, H, W, C] or [B, H, W, 1, C]
        return (pixels.squeeze(3) if self.whole_pixels else pixels).to(torch.uint8)

    def small(self, pixels: Tensor) -> Tensor | None:
        """Return images averaged down, as in `average_down`; None without super-resolution."""
        return None if self.factor is None else average_down(pixels, self.factor)

    def condition(
        self,
        labels: Tensor | None,
        small: Tensor | None = None,
        transformation: Tensor | None = None,
    ) -> Condition:
        """Return what all predictions are conditioned on, as `ImageConditioner.forward` does."""
        device = self.order.cell.device
        parts = (labels, small, transformation)
        given = (None if part is None else part.to(device) for part in parts)
        return self.core.condition(*given)

    def augmented(self, pixels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return images of training transformed at random, and how: int64 [B], see `transformed`.

        As they are, and None, for a model without the setting.
        """
        told = self.conditioner.transformations
        if told is None:
            return pixels, None
        which = torch.randint(told.num_embeddings, (len(pixels),), device=pixels.device)  # [B]
        return transformed(pixels, which), which

    def nll(self, pixels: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the negative log-likelihood of every position, first included, in nats: [B, L].

        pixels: uint8 [B, H, W, C]. A position is a sub-pixel, or a whole pixel with logistics: the
        mean per sub-pixel is the sum divided by H * W * C in both cases. A model of
        super-resolution is given these very images averaged down.
        """
        condition = self.condition(labels, self.small(pixels))
        return self.core.nll(self.to_sequence(pixels), condition=condition)

    def features(
        self, pixels: Tensor, labels: Tensor | None = None, transformation: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the output from which the head predicts [B, L, D], and the values, as in `nll`.

        transformation: int64 [B], how the images were transformed.
        """
        values = self.to_sequence(pixels)
        condition = self.condition(labels, self.small(pixels), transformation)
        return self.core.features(values, condition=condition), values

    @torch.no_grad()
    def sample(
        self,
        request: SampleRequest,
        *,
        labels: Tensor | None = None,
        small: Tensor | None = None,
        pixels: Tensor | None = None,
        filled: Tensor | None = None,
        passes: int = 0,
    ) -> Tensor:
        """Sample `count` images, or with pixels and filled some of their pixels given the others.

        Returns uint8 [count, H, W, C]. labels: int64 [count]. small: uint8 [count, h, w, C], as
        from `small`. pixels: uint8 [count, H, W, C]. filled: bool [H, W], True for a pixel to
        sample; all others come back unchanged. A pixel is sampled given the known ones before it in
        the generation order; `passes` of `resample` make those after it count too.
        """
        request, count, length = on_model(self.core, request), request.count, self.order.length
        condition, given, n_prefix = self.condition(labels, small), None, 0
        if pixels is not None and filled is not None:
            known = self.known_positions(filled)  # [L]
            given = Given(self.to_sequence(pixels.to(known.device)), known.expand(count, -1))
            n_prefix = int(known.long().cumprod(0).sum())
        n_first = length - n_prefix  # positions sampled before the passes
        steps = n_first + passes * length
        images = []
        for start in range(0, count, SAMPLE_BATCH):
            rows = slice(start, min(start + SAMPLE_BATCH, count))
            size, before = rows.stop - start, start * steps
            part = replace(
                request,
                count=size,
                length=length,
                condition=condition.rows(rows),
                progress=part_of(request.progress, before, count * steps, rows=size),
            )
            if given is not None:
                of_rows = Given(given.values[rows], given.known[rows])
                part = replace(part, prefix=of_rows.values[:, :n_prefix], given=of_rows)
            sequences = generate(self.core, part)  # [N, L] or [N, L, C]
            if given is not None and passes:
                before += n_first * size
                progress = part_of(request.progress, before, count * steps, rows=size)
                chain = replace(part, given=Given(sequences, given.known[rows]), progress=progress)
                sequences, _ = resample(self.core, chain, passes=passes)
            images.append(self.to_images(sequences))
        return torch.cat(images)

    def known_positions(self, filled: Tensor) -> Tensor:
        """Return the positions whose values are given: bool [L]; filled: as in `sample`."""
        height, width, channels = self.order.shape
        known = ~filled.to(self.order.cell.device)
        cells = known.view(1, height, width, 1).expand(-1, -1, -1, channels)  # [1, H, W, C]
        return self.order.to_sequence(cells)[0]

    def given_first(self, filled: Tensor) -> bool:
        """Return whether all given pixels come before all filled ones in the generation order."""
        known = self.known_positions(filled)
        return bool((known[:-1] >= known[1:]).all())


@dataclass(frozen=True)
class ImageSettings(PictureSettings):
    """What use of an image model needs besides its weights and vocabulary."""

    model: ModelConfig
    network = ImageTransformer


def average_down(pixels: Tensor, factor: int) -> Tensor:
    """Return the mean of each square of pixels, rounded, a half up, in integers.

    uint8 [B, H, W, C] -> [B, H / factor, W / factor, C].
    """
    squares: Tensor = pixels.long().unflatten(2, (-1, factor)).unflatten(1, (-1, factor))
    sums: Tensor = squares.sum((2, 4))  # [B, h, w, C]
    means = (2 * sums + factor**2) // (2 * factor**2)
    return means.to(pixels.dtype)
