"""What is sampled from a model, and how: one object from a command to the steps of decoding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import torch
from torch import Tensor

from triptych.core.models.base import NO_CONDITION, Condition
from triptych.decoding.compiled import CompiledSteps
from triptych.decoding.sampling import Given, LogitsConstraint, Sampling
from triptych.types import Progress


@dataclass(frozen=True)
class Draft:
    """Draft that repeats the values `lag` positions before; verified by the model in one step.

    Four voices in turn hold most of their notes (lag 4). Verification samples every value from the
    model's distribution with the same random numbers, so a draft changes the speed and no value
    (Leviathan et al. 2023, with a deterministic draft).
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
    """Keyword arguments that the `sample` of every domain takes, see `SampleRequest.of`."""

    seed: int
    """Default 0; the same seed gives the same samples on the same device."""
    temperature: float
    """As in `Sampling`, default 1."""
    top_k: int | None
    """As in `Sampling`, default None."""
    top_p: float | None
    """As in `Sampling`, default None."""
    compile: bool
    """As in `SampleRequest`, default False."""
    progress: Progress | None
    """As in `SampleRequest`, default None."""


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
    def of(
        cls,
        count: int = 1,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        compile: bool = False,
        progress: Progress | None = None,
    ) -> SampleRequest:
        """The request of a call with `SampleKeywords`."""
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
        return cls(count, sampling=sampling, seed=seed, compile=compile, progress=progress)

    def generator_on(self, device: torch.device) -> torch.Generator | None:
        """The generator, or a new one from the seed; None for the generator of torch."""
        if self.generator is not None or self.seed is None:
            return self.generator
        return torch.Generator(device).manual_seed(self.seed)
