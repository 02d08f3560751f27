"""Types that decoding, training and the domains share; imports no heavy library.

A number with limits is a type: a settings class below `Checked` declares `batch_size: PositiveInt`.
For parser and type checker it is an int or float; `Checked` refuses what is beyond the limits.
"""

import functools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
    get_type_hints,
)

Dtype: TypeAlias = Literal["fp32", "bf16", "int8"]
"""Number format of the weights of a model in use."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with (units done, units in all, or 0 where that is unknown)."""


class Limit(NamedTuple):
    """Limit of a number, as metadata of its type; the type itself is int or float."""

    words: str
    fits: Callable[[float], bool]

    def __repr__(self) -> str:
        return self.words.replace("at least", ">=").replace("above", ">").replace("at most", "<=")


PositiveInt: TypeAlias = Annotated[int, Limit("at least 1", lambda x: x >= 1)]
NonNegativeInt: TypeAlias = Annotated[int, Limit("at least 0", lambda x: x >= 0)]
IntAboveOne: TypeAlias = Annotated[int, Limit("at least 2", lambda x: x >= 2)]
# The range of torch's generators.
Seed: TypeAlias = Annotated[int, Limit("from 0 to 2^63 - 1", lambda x: 0 <= x < 2**63)]
PositiveFloat: TypeAlias = Annotated[float, Limit("above 0", lambda x: 0 < x < math.inf)]
NonNegativeFloat: TypeAlias = Annotated[float, Limit("at least 0", lambda x: 0 <= x < math.inf)]
ClosedUnitInterval: TypeAlias = Annotated[float, Limit("from 0 to 1", lambda x: 0 <= x <= 1)]
OpenUnitInterval: TypeAlias = Annotated[float, Limit("above 0 and below 1", lambda x: 0 < x < 1)]
FractionBelowOne: TypeAlias = Annotated[float, Limit("from 0 to below 1", lambda x: 0 <= x < 1)]
PositiveFraction: TypeAlias = Annotated[float, Limit("above 0 and at most 1", lambda x: 0 < x <= 1)]


def at_least(settings: object, least: int, *names: str) -> None:
    """Raise ValueError where one of these fields is a number below `least`; None is allowed."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True)
class Checked:
    """Base of settings made in Python too: a dataclass whose numbers keep their declared limits.

    A class with a `__post_init__` of its own calls that of its base first.
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)  # a class has a hash
        for name, limit in _limits_of(kind).items():
            for number in _numbers(getattr(self, name)):
                if not limit.fits(number):
                    raise ValueError(f"{name} must be {limit.words}, got {number}")


@functools.cache
def _limits_of(cls: Hashable) -> dict[str, Limit]:
    """Return the limit of the numbers in each field that has one."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: limit for name, hint in hints.items() for limit in limits_in(hint)}


def limits_in(hint: Any) -> Iterator[Limit]:
    """Yield the limits of the numbers in a type."""
    if isinstance(hint, Limit):
        yield hint
    for inner in get_args(hint):
        yield from limits_in(inner)


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in a value: itself, or those of a list; none in None."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif value is not None:
        yield value


@dataclass(frozen=True, kw_only=True)
class Sampling(Checked):
    """Sampling settings; top-k and top-p filter the distribution at its temperature."""

    temperature: NonNegativeFloat = 1.0
    """Divisor of the logits (no unit): above 1 more varied, below 1 safer, 0 for the most likely
    value."""
    top_k: PositiveInt | None = None
    """Number of most likely values to sample from; null for all."""
    top_p: PositiveFraction | None = None
    """Probability, above 0 to 1, that the most likely values to sample from must reach; null for
    all (Holtzman et al. 2020, nucleus sampling)."""
