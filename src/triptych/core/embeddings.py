"""What enters a decoder-only model: values at positions, as vectors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


def embedding_table(n: int, d_model: int) -> nn.Embedding:
    """n vectors of width D, drawn with standard deviation D^-0.5."""
    table = nn.Embedding(n, d_model)
    nn.init.normal_(table.weight, std=d_model**-0.5)
    return table


SMOOTH_OVER = 0.25
"""Share of the levels over which the first vectors of a level table stay alike.

Bits per dim on 100 CIFAR pictures after 200 batches of 8 (10 logistics, Muon) from vectors that are
alike over 0.1 of the levels 5.36, 0.25: 5.28, 0.5: 5.29, all: 5.44, from independent vectors 6.08.
These were drawn from a Gaussian process of that covariance, beside independent vectors for rows and
columns; cosines over 0.25 gave 5.21 there. With a softmax a sub-pixel independent vectors 6.52,
alike over 0.25 5.92; on MNIST, nearly all of whose pixels are black or white, no difference.
"""


def level_table(levels: int, channels: int, d_model: int) -> nn.Embedding:
    """A vector of width D for each level of each channel, levels side by side starting alike.

    Grey 100 and grey 101 mean nearly the same, which a table of independent vectors has to learn
    level by level. Here each number of a channel's vectors starts as a cosine of the level with
    its own frequency and phase (random Fourier features, Rahimi and Recht 2007, section 3), so that
    the product of two vectors falls off as a Gaussian of their distance. Standard deviation D^-0.5.
    -> [channels x levels, D], channel by channel.
    """
    table = nn.Embedding(channels * levels, d_model)
    place = torch.linspace(0, 1, levels).unsqueeze(-1)  # [levels, 1]
    frequency = torch.randn(channels, 1, d_model) / SMOOTH_OVER
    phase = torch.rand(channels, 1, d_model) * 2 * math.pi
    waves = (place * frequency + phase).cos()  # [channels, levels, D]
    with torch.no_grad():
        table.weight.copy_(waves.flatten(0, 1) * math.sqrt(2 / d_model))  # [channels x levels, D]
    return table


class ValueEmbedding(nn.Module, ABC):
    """Values at positions as vectors; `value_shape` is the form of one position's value."""

    value_shape: tuple[int, ...] = ()

    @abstractmethod
    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        """values int64 [B, L, *value_shape], index int64 [L] of their positions -> [B, L, D]."""


class TokenEmbedding(ValueEmbedding):
    """A vector per token, times sqrt(D) (Vaswani et al. 2017, section 3.4).

    forward: values int64 [B, L], index int64 [L] (unused) -> [B, L, D].
    """

    def __init__(self, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.table = embedding_table(vocabulary, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        vectors: Tensor = self.table(values) * self.scale  # [B, L, D]
        return vectors


class ChannelEmbedding(ValueEmbedding):
    """Each channel of a picture has its own vectors (Parmar et al. 2018, section 3.1).

    channel: int64 [L], the channel of every step, from the order (`order.coordinates[:, 2]`).
    forward: values int64 [B, L] in 0..levels-1, index int64 [L], the values' own steps
    -> [B, L, D].
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
    """A whole pixel at one position: the sum of one vector per channel and level.

    The same as the paper's convolution of width 1x3 over one-hot channels (Parmar et al. 2018,
    section 3.1). forward: values int64 [B, L, C], index unused -> [B, L, D].
    """

    def __init__(self, levels: int, channels: int, d_model: int) -> None:
        super().__init__()
        self.value_shape = (channels,)
        self.table = level_table(levels, channels, d_model)
        self.scale = math.sqrt(d_model / channels)
        offset = torch.arange(channels) * levels  # [C]
        self.register_buffer("offset", offset, persistent=False)

    offset: Tensor

    def forward(self, values: Tensor, index: Tensor) -> Tensor:
        vectors: Tensor = self.table(values + self.offset).sum(-2)  # [B, L, D]
        return vectors * self.scale
