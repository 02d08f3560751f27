"""Types that decoding, training and the domains share; imports no heavy library.

A number with limits is a type: a settings class declares `batch_size: PositiveInt`. The parser
refuses other values and shows the name in --help; for the type checker it is a plain int or float,
and the value is one. `Checked` refuses them in Python.
"""

import functools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, get_type_hints

Dtype: TypeAlias = Literal["fp32", "bf16", "int8"]
"""Number format of the weights of a model in use."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with (units done, units in all, or 0 where that is unknown)."""


class ProgressFactory(Protocol):
    """Factory of progress displays."""

    def __call__(self, what: str, *, at_most: bool = False) -> Progress:
        """Return a display of the units `what`; `at_most`: the work may end before its total."""


LIMITED: list[Any] = []
"""All types of numbers with limits: subclasses of int and float of which no value is made.

`base` is int or float, `limits` the limits in words; `fits` says whether a number is within them.
"""


def _limited(name: str, base: type, limits: str, fits: Callable[[float], bool]) -> type:
    attributes = {"base": base, "limits": limits, "fits": staticmethod(fits)}
    LIMITED.append(kind := type(name, (base,), {"__module__": __name__, **attributes}))
    return kind


if not TYPE_CHECKING:  # a block `if TYPE_CHECKING` would be executed by jsonargparse
    PositiveInt = _limited("PositiveInt", int, "at least 1", lambda x: x >= 1)
    NonNegativeInt = _limited("NonNegativeInt", int, "at least 0", lambda x: x >= 0)
    IntAboveOne = _limited("IntAboveOne", int, "at least 2", lambda x: x >= 2)
    # The range of torch's generators.
    Seed = _limited("Seed", int, "from 0 to 2^63 - 1", lambda x: 0 <= x < 2**63)
    PositiveFloat = _limited("PositiveFloat", float, "above 0", lambda x: 0 < x < math.inf)
    NonNegativeFloat = _limited(
        "NonNegativeFloat", float, "at least 0", lambda x: 0 <= x < math.inf
    )
    ClosedUnitInterval = _limited("ClosedUnitInterval", float, "from 0 to 1", lambda x: 0 <= x <= 1)
    OpenUnitInterval = _limited(
        "OpenUnitInterval", float, "above 0 and below 1", lambda x: 0 < x < 1
    )
    FractionBelowOne = _limited(
        "FractionBelowOne", float, "from 0 to below 1", lambda x: 0 <= x < 1
    )
    PositiveFraction = _limited(
        "PositiveFraction", float, "above 0 and at most 1", lambda x: 0 < x <= 1
    )
else:
    PositiveInt: TypeAlias = int
    NonNegativeInt: TypeAlias = int
    IntAboveOne: TypeAlias = int
    Seed: TypeAlias = int
    PositiveFloat: TypeAlias = float
    NonNegativeFloat: TypeAlias = float
    ClosedUnitInterval: TypeAlias = float
    OpenUnitInterval: TypeAlias = float
    FractionBelowOne: TypeAlias = float
    PositiveFraction: TypeAlias = float


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
        for name, limited in _limits_of(kind).items():
            for number in _numbers(getattr(self, name)):
                if not limited.fits(number):
                    raise ValueError(f"{name} must be {limited.limits}, got {number}")


@functools.cache
def _limits_of(cls: Hashable) -> dict[str, Any]:
    """Return the limited type in the hint of each field that has one."""
    first = {name: next(_limited_in(hint), None) for name, hint in get_type_hints(cls).items()}
    return {name: limited for name, limited in first.items() if limited is not None}


def _limited_in(hint: Any) -> Iterator[Any]:
    if hint in LIMITED:
        yield hint
    for inner in get_args(hint):
        yield from _limited_in(inner)


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in a value: itself, or those of a list; none in None."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif value is not None:
        yield value
