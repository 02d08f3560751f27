"""What is sampled from a model, and how one value is picked: request, temperature, top-k, top-p."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

import torch
from torch import Tensor

from triptych.core.heads import Head, at_least_float32
from triptych.core.models.base import NO_CONDITION, Condition
from triptych.errors import UserError
from triptych.types import Progress, Sampling

if TYPE_CHECKING:
    from triptych.decoding.execution import CompiledSteps

MIN_TEMPERATURE = 1e-20
"""Smallest divisor of logits that keeps them finite in float32."""


@dataclass(frozen=True)
class Given:
    """Values that are known before sampling; `generate` writes them instead of sampled ones."""

    values: Tensor
    """Int64 [B, L] or [B, L, C]; any id where unknown."""
    known: Tensor
    """Bool [B, L], True where the value is known."""

    def force(self, values: Tensor, start: int) -> Tensor:
        """Values [B, P, ...] of the positions from `start` on, with the known ones in place."""
        here = slice(start, start + values.shape[1])
        known = self.known[:, here].view(*values.shape[:2], *[1] * (values.dim() - 2))
        return torch.where(known, self.values[:, here], values)


class LogitsConstraint(Protocol):
    """Rule about which values may come next; `generate` takes one as `constraint`.

    To add one, write a function or a class with this call, such as one that forbids a repetition:

        def no_repetition(values):
            forbidden = torch.zeros(len(values), 100, dtype=torch.bool, device=values.device)
            return forbidden.scatter(1, values[:, -1:], True)

    It runs at every position, so it should not wait for the device. It must leave at least one
    value in each row. Forbidden values are removed before temperature, top-k and top-p apply: it
    needs a categorical head, whose parameters are the logits of the values.
    """

    def __call__(self, values: Tensor, /) -> Tensor:
        """Values so far int64 [B, t] -> True where a value is forbidden next, bool [B, V]."""


def filter_logits(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits over the temperature, with -inf where top-k or top-p exclude: [..., V].

    Values as probable as the k-th stay, so that the result does not depend on the order of a sort.
    The temperature must be above 0.
    """
    logits = at_least_float32(logits) / max(sampling.temperature, MIN_TEMPERATURE)
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        smallest = logits.topk(sampling.top_k, dim=-1).values[..., -1:]  # [..., 1]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if sampling.top_p is not None and sampling.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        probabilities = ordered.softmax(-1)
        # The probability before a value decides, so the most probable one always stays.
        excluded = probabilities.cumsum(-1) - probabilities >= sampling.top_p
        logits = logits.masked_fill(excluded.scatter(-1, order, excluded), -torch.inf)
    return logits


def sample_category(
    logits: Tensor, sampling: Sampling, generator: torch.Generator | None = None
) -> Tensor:
    """One category per row, without waiting for the device: logits [..., V] -> int64 [...]."""
    if sampling.temperature == 0:
        return logits.argmax(-1)
    probabilities = filter_logits(logits, sampling).softmax(-1)
    # The smallest of independent exponential variables with these rates.
    arrival = torch.empty_like(probabilities).exponential_(generator=generator)
    return (probabilities / arrival.clamp(min=torch.finfo(arrival.dtype).tiny)).argmax(-1)


def sample_logistic(
    like: Tensor, sampling: Sampling, generator: torch.Generator | None = None
) -> Tensor:
    """Standard logistic variables times the temperature, in the shape and dtype of a tensor."""
    uniform = torch.empty_like(like).uniform_(generator=generator).clamp(1e-7, 1 - 1e-7)
    return (uniform.log() - (-uniform).log1p()) * sampling.temperature


def sample_value(
    head: Head, parameters: Tensor, sampling: Sampling, generator: torch.Generator | None = None
) -> Tensor:
    """One value per position from the parameters of a head: [..., Z] -> int64 [...] or [..., C]."""
    return head.sample(
        parameters,
        lambda logits: sample_category(logits, sampling, generator),
        lambda like: sample_logistic(like, sampling, generator),
    )


def check_count(count: int) -> None:
    """Raise UserError for a number of samples below 1."""
    if count < 1:
        raise UserError(f"count is {count}; expected at least 1 sample")


def part_of(progress: Progress | None, first: int, total: int, *, rows: int = 1) -> Progress | None:
    """Return the progress of a part of the work, whose steps count `rows` each, after `first`."""
    if progress is None:
        return None
    return lambda step, _: progress(first + rows * step, total)


@dataclass(frozen=True)
class Draft:
    """Draft that repeats the values `lag` positions before; verified by the model in one step.

    Four voices in turn hold most of their notes (lag 4). Every value is sampled with the same
    random numbers, so a draft changes the speed and no value (Leviathan et al. 2023).
    """

    lag: int
    """Distance to the values that are repeated, in positions."""
    count: int = 8
    """Number of values that are drafted at once, in positions."""

    def write(self, values: Tensor, t: int) -> None:
        """Write drafted values into values [B, L, ...] from position t on, t at least 1."""
        count, lag = min(self.count, values.shape[1] - t), min(self.lag, t)
        source = t - lag + torch.arange(count, device=values.device) % lag  # [count]
        values[:, t : t + count] = values.index_select(1, source)


class SampleKeywords(TypedDict, total=False):
    """Keyword arguments that the `sample` of every domain takes, as in `Sampling` and its request.

    The same seed gives the same samples on the same device. Defaults: of `SampleRequest.of`.
    """

    seed: int
    temperature: float
    top_k: int | None
    top_p: float | None
    compile: bool
    progress: Progress | None


@dataclass(frozen=True)
class SampleRequest:
    """A request for samples; `generate`, `particle_filter` and `resample` serve it.

    The functions between a command and these three fill in what they know with
    `dataclasses.replace`. A new option of sampling is a new field.
    """

    count: int = 1
    """Number of rows, B."""
    length: int = 0
    """Number of values of a row, L, its prefix included."""
    sampling: Sampling = field(default_factory=Sampling)
    """Temperature and filters of the distribution."""
    seed: int | None = None
    """Seed of the generator where none is given; None for the generator of torch."""
    generator: torch.Generator | None = None
    """Source of random numbers, on the model's device."""
    prefix: Tensor | None = None
    """Beginning of the result, int64 [B, P] or [B, P, C]; None for an empty one."""
    previous: Tensor | None = None
    """Value before the first one, int64 [B], as in `AutoregressiveModel.prefill`."""
    condition: Condition = NO_CONDITION
    """What all predictions depend on, of B rows."""
    given: Given | None = None
    """Known values: [B, L]; written instead of sampled ones."""
    end: int | None = None
    """A row that samples this value is finished, and filled with it."""
    constraint: LogitsConstraint | None = None
    """Rule about which values may come next."""
    progress: Progress | None = None
    """Called with (positions done, positions in all)."""
    compile: bool = False
    """Run the steps through torch.compile, into a CUDA graph on a GPU."""
    compiled: CompiledSteps | None = None
    """Compiled steps of the model, for several requests; None to compile where `compile`."""
    draft: Draft | None = None
    """Verify drafted values in steps of several positions; not with compiled steps. The same values
    from the same generator, faster where the drafts are good."""

    @classmethod
    def of(cls, count: int = 1, **options: Unpack[SampleKeywords]) -> SampleRequest:
        """The request of a call with `SampleKeywords`; UserError for less than one sample."""
        check_count(count)
        others: dict[str, Any] = {"seed": 0, **options}
        filters = {f.name: others.pop(f.name) for f in fields(Sampling) if f.name in others}
        return cls(count, sampling=Sampling(**filters), **others)

    def generator_on(self, device: torch.device) -> torch.Generator | None:
        """The generator, or a new one from the seed; None for the generator of torch."""
        if self.generator is not None or self.seed is None:
            return self.generator
        return torch.Generator(device).manual_seed(self.seed)
