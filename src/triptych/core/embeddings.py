"""Embeddings of the values that a model reads: tokens, sub-pixels and pixels."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


def embedding_table(n: int, d_model: int) -> nn.Embedding:
    """n vectors of D features, normal with standard deviation D^-0.5."""
    table = nn.Embedding(n, d_model)
    nn.init.normal_(table.weight, std=d_model**-0.5)
    return table


LEVEL_LENGTH_SCALE = 0.25
"""Length scale of the similarity of level vectors at the start, as a share of all levels."""


def level_table(levels: int, channels: int, d_model: int) -> nn.Embedding:
    """A vector for each level of each channel; neighbouring levels start with similar vectors.

    Independent vectors would have to learn level by level that grey 100 resembles grey 101. Here
    each feature starts as a cosine of the level with a random frequency and phase (random Fourier
    features, Rahimi and Recht 2007, section 3), so that the product of two vectors is a Gaussian
    of the distance of their levels. Standard deviation D^-0.5 -> [channels x levels, D].
    """
    table = nn.Embedding(channels * levels, d_model)
    level = torch.linspace(0, 1, levels).unsqueeze(-1)  # [levels, 1]
    frequency = torch.randn(channels, 1, d_model) / LEVEL_LENGTH_SCALE
    phase = torch.rand(channels, 1, d_model) * 2 * math.pi
    features = (level * frequency + phase).cos()  # [channels, levels, D]
    with torch.no_grad():
        table.weight.copy_(features.flatten(0, 1) * math.sqrt(2 / d_model))
    return table


class ValueEmbedding(nn.Module, ABC):
    """Maps the values at positions to vectors; `value_shape` is the shape of one value."""

    value_shape: tuple[int, ...] = ()

    @abstractmethod
    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        """values int64 [B, L, *value_shape], index int64 [L] of their positions -> [B, L, D]."""


class TokenEmbedding(ValueEmbedding):
    """A vector per token, multiplied by sqrt(D) (Vaswani et al. 2017, section 3.4)."""

    def __init__(self, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.table = embedding_table(vocabulary, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        vectors: Tensor = self.table(values) * self.scale  # [B, L, D]
        return vectors


class ChannelEmbedding(ValueEmbedding):
    """A vector per level of each channel of an image (Parmar et al. 2018, section 3.1).

    channel: int64 [L], the channel of every position (`order.coordinates[:, 2]`).
    """

    def __init__(self, levels: int, channel: Tensor, d_model: int) -> None:
        super().__init__()
        self.levels = levels
        self.table = level_table(levels, int(channel.max()) + 1, d_model)
        self.scale = math.sqrt(d_model)
        self.register_buffer("channel", channel, persistent=False)

    channel: Tensor

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        vectors: Tensor = self.table(values + self.channel[index] * self.levels)  # [B, L, D]
        return vectors * self.scale


class PixelEmbedding(ValueEmbedding):
    """The sum of the vectors of a pixel's channels, for models with a whole pixel per position.

    Equal to the convolution of width 1x3 over one-hot channels of Parmar et al. 2018, section 3.1.
    """

    def __init__(self, levels: int, channels: int, d_model: int) -> None:
        super().__init__()
        self.value_shape = (channels,)
        self.table = level_table(levels, channels, d_model)
        self.scale = math.sqrt(d_model / channels)
        self.register_buffer("offset", torch.arange(channels) * levels, persistent=False)  # [C]

    offset: Tensor

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        vectors: Tensor = self.table(values + self.offset).sum(-2)  # [B, L, D]
        return vectors * self.scale
