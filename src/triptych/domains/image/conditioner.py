"""What an image model is conditioned on, and what its inputs have of the pixels above."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.heads import NEIGHBOURS, PastTerm
from triptych.core.models.base import NO_CONDITION, Condition, Conditioner, added
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import GenerationOrder
from triptych.core.state import Memory


@dataclass(frozen=True)
class Inputs:
    """What the vectors of the positions are made of: the own part of a `DecodingState`."""

    condition: Tensor | None
    """Vectors of the condition: [B, 1, D] or [B, L, D]."""
    small: Tensor | None
    """Of `ImageCondition`."""
    values: Tensor | None
    """Values so far, int64 [B, L] or [B, L, C]; None where the value before alone is read."""


@dataclass(frozen=True)
class ImageCondition(Condition):
    """The condition of an image model."""

    small: Tensor | None = None
    """The small image of super-resolution, uint8 [B, h, w, C]."""


class ImageConditioner(Conditioner):
    """Adds vectors to the inputs: of the class, of the small image's pixel, of the pixels above.

    All are optional. small: reads a small image. above: reads the pixels above. Where training
    transforms images, the transformation has a vector too.
    """

    def __init__(
        self, small: SmallImage | None, above: PixelsAbove | None, value_shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.small = small
        self.above = above
        self.register_buffer("zero", torch.zeros(value_shape, dtype=torch.int64), persistent=False)
        self.classes: nn.Embedding | None = None
        self.transformations: nn.Embedding | None = None

    zero: Tensor  # int64 [(C)], stands for a value that is not known yet

    def forward(
        self, labels: Tensor | None, small: Tensor | None, transformation: Tensor | None = None
    ) -> Condition:
        """Return the condition of classes int64 [B] and small images, uint8 [B, h, w, C].

        transformation: int64 [B], of `transformed`; None for images as they are. One that the model
        does not know adds nothing. Raises ValueError for a small image exactly if the model reads
        none, or the reverse.
        """
        if (small is None) != (self.small is None):
            raise ValueError("a small image is needed exactly by a model of super-resolution")
        vectors = None if self.classes is None else self.classes(labels).unsqueeze(1)  # [B, 1, D]
        told = None
        if self.transformations is not None and transformation is not None:
            known = transformation < self.transformations.num_embeddings  # [B]
            told = self.transformations(transformation * known).unsqueeze(1)  # [B, 1, D]
        of_small = NO_CONDITION if self.small is None else self.small(small)
        return ImageCondition(added(vectors, told, of_small.vectors), of_small.memory, small)

    def start(self, condition: Condition, batch: int, length: int) -> Inputs:
        small = condition.small if isinstance(condition, ImageCondition) else None
        values = None
        if self.above is not None or self.small is not None:
            values = self.zero.repeat(batch, length, *(1 for _ in self.zero.shape))  # [B, L(, C)]
        return Inputs(condition.vectors, small, values)

    def for_term(self, kept: Inputs) -> Tensor | None:
        return kept.small

    def first_vectors(self, values: Tensor, kept: Inputs) -> Tensor | None:
        read = torch.arange(values.shape[1] + 1, device=values.device)  # [P + 1], 0 reads nothing
        above = self._of_values(values, read[1:], read, kept)
        return added(super().first_vectors(values, kept.condition), above)  # [B, P + 1, D]

    def step_vectors(self, values: Tensor, positions: Tensor, kept: Inputs) -> Tensor | None:
        above = self._of_values(values, positions, positions, kept)
        return added(super().step_vectors(values, positions, kept.condition), above)  # [B, P, D]

    def _of_values(
        self, values: Tensor, after: Tensor, positions: Tensor, kept: Inputs
    ) -> Tensor | None:
        """Vectors of positions int64 [P], once the values [B, Q] are kept; after: them, [Q]."""
        if kept.values is None:
            return None
        places = (after - 1).clamp(min=0)  # [Q]; what position 0 writes, position 1 replaces
        kept.values.index_copy_(1, places, values)
        above = None if self.above is None else self.above(kept.values, positions)  # [B, P, D]
        remaining = None
        if self.small is not None:
            assert kept.small is not None
            remaining = self.small.of_values(kept.values, positions, kept.small)  # [B, P, D]
        return added(above, remaining)


def transformed(pixels: Tensor, transformation: Tensor) -> Tensor:
    """Return images mirrored, and square ones also turned: [B, H, W, C] -> the same shape.

    transformation: int64 [B], 0 to 7, the sum of 1 for columns in reverse order, 2 for rows in
    reverse order, and 4 (square images alone) for rows and columns exchanged after that.
    """
    of_each = transformation.view(-1, 1, 1, 1)
    pixels = torch.where((of_each & 1) > 0, pixels.flip(2), pixels)
    pixels = torch.where((of_each & 2) > 0, pixels.flip(1), pixels)
    if (transformation & 4).any():
        pixels = torch.where((of_each & 4) > 0, pixels.transpose(1, 2), pixels)
    return pixels


class SmallImage(nn.Module):
    """Reads the image averaged down.

    Each position gets the vector of the pixel of the small image that covers it, through a matrix
    that starts at zero, and a vector, zero at first, of the mean of the remaining pixels of its
    square. Cross-attention reads all of the small image (Parmar et al. 2018, section 5.3).
    """

    def __init__(self, encoder: SequenceEncoder, squares: Squares, d_model: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.squares = squares
        self.aligned = nn.Linear(d_model, d_model, bias=False)
        self.remaining = nn.Embedding(squares.channels * squares.levels, d_model)
        nn.init.zeros_(self.aligned.weight)
        nn.init.zeros_(self.remaining.weight)

    def forward(self, small: Tensor) -> Condition:
        """uint8 [B, h, w, C] -> vectors of positions [B, L, D], and the memory [B, h w, D]."""
        features: Tensor = self.encoder(small.long().flatten(1, 2))  # [B, h w, D]
        vectors = self.aligned(features).index_select(1, self.squares.pixel)  # [B, L, D]
        return Condition(vectors, Memory(features))

    def of_values(self, values: Tensor, positions: Tensor, small: Tensor) -> Tensor:
        """Vectors of the means of the remaining pixels at positions int64 [P]: [B, P, D].

        values: int64 [B, L(, C)], those before each position known. small: as in `forward`.
        """
        means = self.squares.remaining(self.squares.past(values, positions), positions, small)
        first = self.squares.channel[positions] * self.squares.levels  # [P, C'], rows of the table
        vectors: Tensor = self.remaining(means.round().long() + first).sum(2)  # [B, P, D]
        return vectors


class Squares(nn.Module):
    """Squares of an image whose means are known: the pixels of the image averaged down by `factor`.

    order, channels and levels: of the large image. A position of a sub-pixel has the square of its
    channel, one of a pixel that of each channel (C' is 1 or C).
    """

    def __init__(self, order: GenerationOrder, factor: int, channels: int, levels: int) -> None:
        super().__init__()
        self.channels, self.levels = channels, levels
        at = order.coordinates // torch.tensor([factor, factor, 1])  # [L, 3]
        row, column, channel = at.unbind(-1)  # 3 x [L]
        inside = torch.cartesian_prod(torch.arange(factor), torch.arange(factor))  # [F, 2]
        pixels = at[:, None, :2] * factor + inside  # [L, F, 2]
        read = order.positions[(*pixels.unbind(-1), channel.unsqueeze(1))]  # [L, F]
        later = read >= torch.arange(order.length).unsqueeze(1)  # [L, F]
        whole = order.shape[2] < channels
        every = torch.arange(channels).expand(order.length, -1)  # [L, C]
        self.register_buffer("read", read.masked_fill(later, -1), persistent=False)
        self.register_buffer("pixel", row * (order.shape[1] // factor) + column, persistent=False)
        self.register_buffer("channel", every if whole else channel.unsqueeze(1), persistent=False)

    read: Tensor  # int64 [L, F], positions of the pixels of the square, -1 for those not before it
    pixel: Tensor  # int64 [L], the square
    channel: Tensor  # int64 [L, C'], the channels of the position

    def past(self, values: Tensor, positions: Tensor) -> Tensor:
        """The pixels of the squares of positions [P] among values, -1 for none: [B, P, F(, C)]."""
        read = self.read[positions]  # [P, F]
        none = (read < 0).view(*read.shape, *(1 for _ in values.shape[2:]))  # [P, F(, 1)]
        return values[:, read.clamp(min=0)].masked_fill(none, -1)

    def remaining(self, past: Tensor, positions: Tensor, small: Tensor) -> Tensor:
        """The means of the pixels of the squares that are not in the past: float [B, P, C'].

        past: int64 [B, P, F(, C)], -1 for none. small: uint8 [B, h, w, C], the means, rounded.
        """
        squares = small.flatten(1, 2)[:, self.pixel[positions]].long()  # [B, P, C]
        channel = self.channel[positions].expand(len(small), -1, -1)  # [B, P, C']
        squares = squares.gather(2, channel)  # [B, P, C']
        past = past.reshape(*past.shape[:3], -1)  # [B, P, F, C']
        number = past.shape[2]
        rest = number * squares - past.clamp(min=0).sum(2)  # [B, P, C']
        # The last pixel is exact but for the rounding of the mean.
        return (rest / (number - (past >= 0).sum(2))).clamp(0, self.levels - 1)


def beside(order: GenerationOrder, offsets: tuple[tuple[int, int], ...]) -> tuple[Tensor, Tensor]:
    """Return the positions of the pixels at offsets from each position, and which of them count.

    offsets: N pairs of rows and columns. -> int64 [L, N, C], any position for a pixel outside of
    the image, and bool [L, N, C], whether the pixel is in the image and earlier in the order.
    """
    height, width, _ = order.shape
    at = order.coordinates[:, None, :2] + torch.tensor(offsets)  # [L, N, 2]
    row, column = at.unbind(-1)  # 2 x [L, N]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)  # [L, N]
    positions = order.positions[row.clamp(0, height - 1), column.clamp(0, width - 1)]  # [L, N, C]
    earlier = positions < torch.arange(order.length)[:, None, None]  # [L, N, C]
    return positions, inside.unsqueeze(-1) & earlier


class PixelsAbove(nn.Module):
    """The sum of learned vectors of the values of the three pixels above each position.

    They start at zero. A pixel outside of the image or later in the order has none.
    channels: of the image. Positions are sub-pixels, or pixels where the order has one channel.
    """

    def __init__(self, order: GenerationOrder, channels: int, levels: int, d_model: int) -> None:
        super().__init__()
        read, known = beside(order, NEIGHBOURS[1:])  # 2 x [L, 3, C']
        self.table = nn.Embedding(3 * channels * levels, d_model)
        nn.init.zeros_(self.table.weight)
        first = torch.arange(0, 3 * channels * levels, levels).view(3, channels)
        self.register_buffer("read", read, persistent=False)
        self.register_buffer("known", known, persistent=False)
        self.register_buffer("first", first, persistent=False)

    read: Tensor  # int64 [L, 3, C'], positions above each position; C' is 1 for whole pixels
    known: Tensor  # bool [L, 3, C'], whether they are in the image and earlier
    first: Tensor  # int64 [3, C], row of the table for level 0

    def forward(self, values: Tensor, positions: Tensor) -> Tensor:
        """values int64 [B, N(, C)], of the first N positions; positions int64 [P] -> [B, P, D]."""
        read, known = self.read[positions], self.known[positions]  # [P, 3, C']
        # A position that is not known yet stands for any other.
        above = values[:, read.clamp(max=values.shape[1] - 1)]  # [B, P, 3, C'(, C)]
        rows = above.flatten(3) + self.first  # [B, P, 3, C]
        counted = known.to(self.table.weight.dtype).expand_as(rows)
        vectors = F.embedding_bag(
            rows.flatten(2).flatten(0, 1),
            self.table.weight,
            mode="sum",
            per_sample_weights=counted.flatten(2).flatten(0, 1),
        )  # [B P, D]
        return vectors.view(*rows.shape[:2], -1)  # [B, P, D]


class NeighbourValues(PastTerm):
    """The values of the pixel to the left and of the three above, in [-1, 1], for a head.

    squares: of super-resolution; the mean of the remaining pixels of the square follows. A pixel
    outside of the image or later in the order counts as the middle, 0.
    """

    def __init__(self, order: GenerationOrder, levels: int, squares: Squares | None = None) -> None:
        super().__init__()
        self.levels, self.squares = levels, squares
        position, known = (each[..., 0] for each in beside(order, NEIGHBOURS))  # 2 x [L, 4]
        places = torch.where(known, position + 1, 0)  # [L, 4]
        self.width = places.shape[1]
        if squares is not None:
            places = torch.cat([places, squares.read + 1], dim=1)  # [L, 4 + F]
            self.width += 1
        self.reach = places.shape[1]
        self.register_buffer("places", places, persistent=False)

    width: int
    """Number W of pixels whose values it gives."""
    places: Tensor  # int64 [L, R], as `read` returns them

    def read(self, positions: Tensor) -> Tensor:
        return self.places[positions]  # [P, R]

    def forward(self, past: Tensor, positions: Tensor, given: Tensor | None = None) -> Tensor:
        values = past[:, :, : len(NEIGHBOURS)]  # [B, P, 4, C]
        if self.squares is not None:
            assert given is not None
            of_square = past[:, :, len(NEIGHBOURS) :]  # [B, P, F, C]
            means = self.squares.remaining(of_square, positions, given)  # [B, P, C]
            values = torch.cat([values, means.unsqueeze(2)], dim=2)  # [B, P, W, C]
        centres = values * (2 / (self.levels - 1)) - 1  # [B, P, W, C]
        return centres.masked_fill(values < 0, 0).flatten(2)  # [B, P, W C]
