"""Output heads: the distribution of a value, as a category or as a mixture of logistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from triptych.types import Checked, PositiveInt

MAX_PARAMETER_BYTES = 2**28
"""Largest size of the parameters that a loss computes at a time, as float32 or wider."""

Loss = Callable[..., Tensor]
"""Parameters of a head [..., Z] and targets -> the loss of each position [...]."""
Sampler = Callable[[Tensor], Tensor]
"""Source of random values, at the temperature and with the generator of a sampling call."""


class Head(nn.Module, ABC):
    """Maps the decoder's output to a distribution; computes its likelihood and samples from it."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> parameters of the distribution [..., Z]."""

    @abstractmethod
    def nll(self, parameters: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood of each position's target, in nats, float32 or wider: [...]."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number Z of parameters of a position's distribution."""

    def losses(
        self, x: Tensor, targets: Tensor, loss: Loss | None = None, *further: Tensor
    ) -> Tensor:
        """`loss(self(x), targets)` from the decoder's output, by default `nll`: [..., D] -> [...].

        further: [..., E] at the same positions, which the loss gets too, such as other outputs.
        Parameters larger than `MAX_PARAMETER_BYTES` are computed in chunks of positions, and again
        in the backward pass, so that only those of one chunk are in memory.
        """
        of_parameters = self.nll if loss is None else loss

        def of_rows(rows: Tensor, wanted: Tensor, *others: Tensor) -> Tensor:
            return of_parameters(self(rows), wanted, *others)

        n_axes = x.ndim - 1
        size = max(1, MAX_PARAMETER_BYTES // (self.n_parameters * max(4, x.element_size())))
        if x.shape[:-1].numel() <= size:
            return of_rows(x, targets, *further)
        parts_of = [part.flatten(0, n_axes - 1).split(size) for part in (x, targets, *further)]
        # Without autocast's cache each chunk casts the weights, and their gradients add in float32.
        kind = x.device.type
        with torch.autocast(kind, cache_enabled=False) if autocasts(kind) else nullcontext():
            parts = [
                checkpoint(of_rows, *chunk, use_reentrant=False, preserve_rng_state=False)
                for chunk in zip(*parts_of, strict=True)
            ]
        return torch.cat(parts).view(x.shape[:-1])

    @abstractmethod
    def sample(self, parameters: Tensor, category: Sampler, logistic: Sampler) -> Tensor:
        """One value per position.

        category: samples from logits [..., V] -> int64 [...]; logistic: from the standard logistic
        distribution, in the shape and dtype of its argument.
        """


@dataclass(frozen=True)
class HeadConfig(Checked, ABC):
    """Settings of an output head for values of one or more channels."""

    whole_pixels: ClassVar[bool]
    """Whether a position is a whole pixel instead of one channel of a pixel."""

    @abstractmethod
    def build(self, d_model: int, levels: int, channels: int, neighbours: int = 0) -> Head:
        """Make the head for values 0..levels-1 in each channel; a token has one channel.

        neighbours: number of pixels whose values follow the features.
        """


@dataclass(frozen=True)
class Categorical(HeadConfig):
    """A softmax over all levels at each sub-pixel (Parmar et al. 2018, section 3.1)."""

    whole_pixels = False

    def build(
        self, d_model: int, levels: int, channels: int, neighbours: int = 0
    ) -> CategoricalHead:
        return CategoricalHead(d_model, levels)


NEIGHBOURS = ((0, -1), (-1, -1), (-1, 0), (-1, 1))
"""Rows and columns from a pixel to the one on the left and the three above."""


@dataclass(frozen=True)
class MixtureOfLogistics(HeadConfig):
    """A mixture of discretised logistics at each pixel (Salimans et al. 2017, section 2.1)."""

    whole_pixels = True

    components: PositiveInt = 10
    """Number of logistics in the mixture."""
    neighbours: bool = False
    """Means also depend linearly on the values of the pixel to the left and the three above, and in
    super-resolution on the mean of the pixels to come that the small image implies."""

    def build(
        self, d_model: int, levels: int, channels: int, neighbours: int = 0
    ) -> MixtureOfLogisticsHead:
        return MixtureOfLogisticsHead(d_model, levels, channels, self.components, neighbours)


class PastTerm(nn.Module, ABC):
    """What a head reads of the values before a position themselves, beside the decoder's features.

    A categorical head adds it to its logits. Such terms of a softmax are fitted until the mean of
    each is that of the data, so that a model learns from few examples what it should avoid
    (log-linear models, Berger et al. 1996). A mixture of logistics gets the values of neighbours.
    """

    reach: int
    """Number R of values before a position that it reads."""

    def read(self, positions: Tensor) -> Tensor:
        """Numbers of the values that it reads at positions int64 [P], the first is 1: [P, R].

        0 and less stand for none.
        """
        return positions.unsqueeze(1) + torch.arange(1 - self.reach, 1, device=positions.device)

    @abstractmethod
    def forward(self, past: Tensor, positions: Tensor, given: Any = None) -> Tensor:
        """The term at positions int64 [P]: past int64 [B, P, R(, C)], -1 for none.

        given: of `Conditioner.for_term` -> [B, P, V], what the head takes after the features.
        """


class CategoricalHead(Head):
    """A softmax over V categories; targets int64 [...]; parameters are logits [..., V].

    Its input is [..., D], or [..., D + V] with a `PastTerm`, which is added to the logits. Weights
    start at zero, so that the first likelihood is exactly log V. weight [V, D]: a matrix that the
    head shares with an embedding and leaves as it is.
    """

    def __init__(
        self, d_model: int, categories: int, *, bias: bool = True, weight: Tensor | None = None
    ) -> None:
        super().__init__()
        self.logits = nn.Linear(d_model, categories, bias=bias)
        if weight is None:
            nn.init.zeros_(self.logits.weight)
        else:
            self.logits.weight = weight
        if bias:
            nn.init.zeros_(self.logits.bias)

    @property
    def n_parameters(self) -> int:
        return self.logits.out_features

    def forward(self, x: Tensor) -> Tensor:
        d_model = self.logits.in_features
        logits: Tensor = self.logits(x[..., :d_model])  # [..., V]
        return logits if x.shape[-1] == d_model else logits + x[..., d_model:]

    def nll(self, parameters: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(parameters, targets)

    def sample(self, parameters: Tensor, category: Sampler, logistic: Sampler) -> Tensor:
        return category(parameters)


class GivenLogits(CategoricalHead):
    """A softmax over logits [..., V] that a model gives it in place of features; no weights."""

    def __init__(self, categories: int) -> None:
        super(CategoricalHead, self).__init__()
        self.categories = categories

    @property
    def n_parameters(self) -> int:
        return self.categories

    def forward(self, x: Tensor) -> Tensor:
        return x


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(logits)[target] in nats: logits [..., V], targets [...] -> [...]."""
    flat = F.cross_entropy(
        at_least_float32(logits).flatten(0, -2), targets.flatten(), reduction="none"
    )
    return flat.view_as(targets)


def at_least_float32(x: Tensor) -> Tensor:
    """x, in float32 if it is in half precision; likelihoods are never computed in less."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def autocasts(device: str) -> bool:
    """Whether autocast is on for this type of device; some have none."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


class MixtureOfLogisticsHead(Head):
    """A mixture of discretised logistics per pixel (PixelCNN++, 1701.05517, sections 2.1 and 2.2).

    Levels 0..levels-1 lie evenly on [-1, 1]. The probability of a level is the logistic mass of its
    bin; the first and the last bin reach to infinity, so the probabilities sum to 1. The mean of a
    channel depends linearly on the pixel's earlier channels. Parameters per pixel:
    components x (1 + 2 channels + channels (channels - 1) / 2), 100 for 10 components in RGB.
    Targets are int64 [..., C]; `nll` is that of the whole pixel.

    neighbours: number N of pixels whose values, in [-1, 1], follow the features: [..., D + N C].
    Each mean has a weighted sum of them in its channel added, and the earlier channels count as
    their difference from such sums. The decoder gives the weights, which start at zero.
    """

    def __init__(
        self, d_model: int, levels: int, channels: int, components: int, neighbours: int = 0
    ) -> None:
        super().__init__()
        self.levels, self.channels, self.components = levels, channels, components
        self.d_model, self.neighbours = d_model, neighbours
        coefficients = channels * (channels - 1) // 2
        # Rows of mixture logits, means, log scales and coefficients of earlier channels.
        self.sizes = [1, channels, channels, coefficients]
        self.parameters_of = nn.Linear(d_model, components * sum(self.sizes))
        self.of_neighbours: nn.Linear | None = None
        if neighbours:
            self.of_neighbours = nn.Linear(d_model, components * channels * neighbours)
            nn.init.zeros_(self.of_neighbours.weight)
            nn.init.zeros_(self.of_neighbours.bias)
        nn.init.xavier_uniform_(self.parameters_of.weight)
        nn.init.zeros_(self.parameters_of.bias)
        with torch.no_grad():
            # Means start evenly over the range, all scales at exp(-1).
            bias = self.parameters_of.bias.view(sum(self.sizes), components)
            bias[1 : 1 + channels] = torch.linspace(-1, 1, components + 2)[1:-1]
            bias[1 + channels : 1 + 2 * channels] = -1.0

    @property
    def n_parameters(self) -> int:
        return self.parameters_of.out_features

    def forward(self, x: Tensor) -> Tensor:
        # Not in half precision under autocast: near 1 a bfloat16 mean has steps of 1/256, half a
        # level of 256, and above 1 twice that.
        if autocasts(x.device.type):
            with torch.autocast(x.device.type, enabled=False):
                return self.forward(at_least_float32(x))
        features, values = x[..., : self.d_model], x[..., self.d_model :]  # [..., D], [..., N C]
        parameters: Tensor = self.parameters_of(features)  # [..., Z]
        if self.of_neighbours is None:
            return parameters
        weights = self.of_neighbours(features)  # [..., N C M]
        weights = weights.unflatten(-1, (self.neighbours, self.channels, self.components))
        values = values.unflatten(-1, (self.neighbours, self.channels, 1))  # [..., N, C, 1]
        expected = (weights * values).sum(-3)  # [..., C, M]
        rows = parameters.unflatten(-1, (-1, self.components))  # [..., rows, M]
        mixture, means, log_scales, coefficients = rows.split(self.sizes, dim=-2)
        # `_mean` adds earlier channels as they are: take off what the neighbours say of them.
        earlier = -coefficients.tanh()
        added = [self._mean(c, expected, earlier, expected) for c in range(self.channels)]
        means = means + torch.stack(added, dim=-2)  # [..., C, M]
        return torch.cat([mixture, means, log_scales, coefficients], dim=-2).flatten(-2)

    def nll(self, parameters: Tensor, targets: Tensor) -> Tensor:
        mixture, means, log_scales, coefficients = self._split(parameters)
        value = self._centre_of(targets, parameters).unsqueeze(-1)  # [..., C, 1]
        means = torch.stack(
            [self._mean(c, means, coefficients, value) for c in range(self.channels)], dim=-2
        )  # [..., C, M]
        log_mass = self._log_mass(value, targets.unsqueeze(-1), means, log_scales)  # [..., C, M]
        per_component = log_mass.sum(-2) + mixture.log_softmax(-1)  # [..., M]
        return -per_component.logsumexp(-1)  # [...]

    def sample(self, parameters: Tensor, category: Sampler, logistic: Sampler) -> Tensor:
        mixture, means, log_scales, coefficients = self._split(parameters)
        component = category(mixture)[..., None, None]  # [..., 1, 1]

        def of_component(x: Tensor) -> Tensor:
            index = component.expand(*x.shape[:-1], 1)
            return x.gather(-1, index)  # [..., C, 1]

        means, log_scales = of_component(means), of_component(log_scales)
        coefficients = of_component(coefficients)
        noise = logistic(means)  # [..., C, 1]
        level = torch.zeros_like(means, dtype=torch.int64)  # [..., C, 1]
        for c in range(self.channels):
            value = self._centre_of(level, parameters)  # [..., C, 1]
            mean = self._mean(c, means, coefficients, value)  # [..., 1], reads channels before c
            sampled = (mean + log_scales[..., c, :].exp() * noise[..., c, :] + 1) / 2
            # Rounded to the level of its bin, which has exactly the mass that `nll` counts.
            sampled = (sampled * (self.levels - 1)).round().clamp(0, self.levels - 1)
            level[..., c, :] = sampled.long()
        return level.squeeze(-1)  # [..., C]

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mixture logits [..., M], means, log scales [..., C, M], coefficients, in float32."""
        rows = at_least_float32(parameters)
        rows = rows.reshape(*rows.shape[:-1], sum(self.sizes), self.components)
        mixture, means, log_scales, coefficients = rows.split(self.sizes, dim=-2)
        return mixture.squeeze(-2), means, log_scales.clamp(min=-7.0), coefficients.tanh()

    def _centre_of(self, level: Tensor, like: Tensor) -> Tensor:
        """Centres of levels in [-1, 1], in the dtype of `like`, float32 or wider."""
        return level.to(at_least_float32(like).dtype) * (2 / (self.levels - 1)) - 1

    def _mean(self, channel: int, means: Tensor, coefficients: Tensor, value: Tensor) -> Tensor:
        """Mean of a channel given the earlier ones, [..., >= channel, 1] in [-1, 1]: [..., M]."""
        first = channel * (channel - 1) // 2
        earlier = coefficients[..., first : first + channel, :] * value[..., :channel, :]
        return means[..., channel, :] + earlier.sum(-2)

    def _log_mass(self, value: Tensor, level: Tensor, means: Tensor, log_scales: Tensor) -> Tensor:
        """Logarithm of the logistic mass in the level's bin: [..., C, M]."""
        half_bin = 1 / (self.levels - 1)
        steep = (-log_scales).exp()
        upper = steep * (value - means + half_bin)
        lower = steep * (value - means - half_bin)
        # sigmoid(u) - sigmoid(l) = sigmoid(u) sigmoid(-l) (1 - exp(l - u)), where l - u does not
        # depend on the mean. Nothing cancels, so no approximation is needed in the tails.
        width = (-2 * half_bin * steep).expm1().neg().clamp(min=1e-30).log()
        inside = F.logsigmoid(upper) + F.logsigmoid(-lower) + width
        below = F.logsigmoid(upper)  # the first bin reaches to -infinity
        above = F.logsigmoid(-lower)  # the last bin reaches to +infinity
        log_mass = torch.where(level == 0, below, inside)
        return torch.where(level == self.levels - 1, above, log_mass)
