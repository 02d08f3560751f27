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
    values: Tensor | None
    """Values so far, int64 [B, L] or [B, L, C]; None for a model that does not look above."""


class ImageConditioner(Conditioner):
    """Adds vectors to the inputs: of the class, of the small image's pixel, of the pixels above.

    All are optional. small: reads a small image. above: reads the pixels above. Where training
    transforms images, the transformation has a vector too.
    """

    def __init__(self, small: SmallImage | None, above: PixelsAbove | None) -> None:
        super().__init__()
        self.small = small
        self.above = above
        self.classes: nn.Embedding | None = None
        self.transformations: nn.Embedding | None = None

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
        return Condition(added(vectors, told, of_small.vectors), of_small.memory)

    def start(self, condition: Condition, batch: int, length: int) -> Inputs:
        values = None if self.above is None else self.above.no_values(batch, length)
        return Inputs(condition.vectors, values)

    def first_vectors(self, values: Tensor, kept: Inputs) -> Tensor | None:
        read = torch.arange(values.shape[1] + 1, device=values.device)  # [P + 1], 0 reads nothing
        above = self._above(values, read[1:], read, kept.values)
        return added(super().first_vectors(values, kept.condition), above)  # [B, P + 1, D]

    def step_vectors(self, values: Tensor, positions: Tensor, kept: Inputs) -> Tensor | None:
        above = self._above(values, positions, positions, kept.values)
        return added(super().step_vectors(values, positions, kept.condition), above)  # [B, P, D]

    def _above(
        self, values: Tensor, after: Tensor, positions: Tensor, kept: Tensor | None
    ) -> Tensor | None:
        """Vectors of positions int64 [P], once the values [B, Q] are kept; after: them, [Q]."""
        if self.above is None or kept is None:
            return None
        places = (after - 1).clamp(min=0)  # [Q]; what position 0 writes, position 1 replaces
        vectors: Tensor = self.above(kept.index_copy_(1, places, values), positions)
        return vectors  # [B, P, D]


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
    """Reads the image averaged down by `factor`; order: of the large image.

    Each position gets the vector of the pixel of the small image that covers it, through a matrix
    that starts at zero. Cross-attention reads all of them (Parmar et al. 2018, section 5.3).
    """

    def __init__(
        self, encoder: SequenceEncoder, order: GenerationOrder, factor: int, d_model: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.aligned = nn.Linear(d_model, d_model, bias=False)
        nn.init.zeros_(self.aligned.weight)
        row, column, _ = (order.coordinates // factor).unbind(-1)
        pixel = row * (order.shape[1] // factor) + column
        self.register_buffer("pixel", pixel, persistent=False)

    pixel: Tensor  # int64 [L], pixel of the small image that covers each position

    def forward(self, small: Tensor) -> Condition:
        """uint8 [B, h, w, C] -> vectors of positions [B, L, D], and the memory [B, h w, D]."""
        features: Tensor = self.encoder(small.long().flatten(1, 2))  # [B, h w, D]
        return Condition(self.aligned(features).index_select(1, self.pixel), Memory(features))


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
        self.value_shape = (channels,) if order.shape[2] < channels else ()
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

    def no_values(self, batch: int, length: int) -> Tensor:
        """Return a place for the values of `length` positions: int64 [B, length(, C)]."""
        size = (batch, length, *self.value_shape)
        return torch.zeros(size, dtype=torch.int64, device=self.read.device)

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

    A pixel outside of the image or later in the order counts as the middle, 0.
    """

    def __init__(self, order: GenerationOrder, levels: int) -> None:
        super().__init__()
        self.levels, self.reach = levels, len(NEIGHBOURS)
        position, known = (each[..., 0] for each in beside(order, NEIGHBOURS))  # 2 x [L, 4]
        self.register_buffer("places", torch.where(known, position + 1, 0), persistent=False)

    places: Tensor  # int64 [L, 4], as `read` returns them

    def read(self, positions: Tensor) -> Tensor:
        return self.places[positions]  # [P, 4]

    def forward(self, past: Tensor, positions: Tensor) -> Tensor:
        centres = past * (2 / (self.levels - 1)) - 1  # [B, P, 4, C]
        return centres.masked_fill(past < 0, 0).flatten(2)  # [B, P, 4 C]
