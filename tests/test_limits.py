"""Numbers with limits: refused when settings are read and when they are made in Python."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from triptych import domains, types
from triptych.config.messages import import_kinds
from triptych.config.schema import from_plain, to_plain
from triptych.errors import UserError
from triptych.types import Checked, FractionBelowOne, NonNegativeFloat, PositiveInt, limits_in

INSIDE = {"Seed": [0, 2**63 - 1], "PositiveInt": [1, 10**9], "NonNegativeInt": [0, 10**9],
          "IntAboveOne": [2, 10**9], "PositiveFloat": [1e-30, 1e30], "NonNegativeFloat": [0, 1e30],
          "ClosedUnitInterval": [0, 1], "OpenUnitInterval": [1e-9, 1 - 1e-9],
          "FractionBelowOne": [0, 1 - 1e-9], "PositiveFraction": [1e-9, 1]}  # fmt: skip
OUTSIDE = {"Seed": [-1, 2**63], "PositiveInt": [0, -1], "NonNegativeInt": [-1],
           "IntAboveOne": [1, -1], "PositiveFloat": [0, -1, math.inf, math.nan],
           "NonNegativeFloat": [-1e-9, math.inf, math.nan],
           "ClosedUnitInterval": [-1e-9, 1.001, math.nan], "OpenUnitInterval": [0, 1, math.nan],
           "FractionBelowOne": [-1e-9, 1, math.nan],
           "PositiveFraction": [0, 1.001, math.nan]}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Settings(Checked):
    count: PositiveInt = 2
    scale: NonNegativeFloat | None = None
    decays: tuple[FractionBelowOne, FractionBelowOne] = (0.1, 0.2)


@pytest.mark.parametrize("name", INSIDE)
def test_the_bounds_of_every_type(name: str) -> None:
    (limit,) = limits_in(getattr(types, name))
    assert all(map(limit.fits, INSIDE[name]))
    assert not any(map(limit.fits, OUTSIDE[name]))
    assert {name for name, kind in vars(types).items() if [*limits_in(kind)]} == set(INSIDE)


def test_what_is_read_is_a_plain_number() -> None:
    read = from_plain(Settings, {"count": 3, "scale": 2, "decays": [0, 0.5]})
    assert read == Settings(3, 2.0, (0.0, 0.5))
    assert [type(read.count), type(read.scale), type(read.decays[0])] == [int, float, float]
    assert to_plain(read) == {"count": 3, "scale": 2.0, "decays": [0.0, 0.5]}


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"count": 0}, "here: count must be at least 1, got 0"),
        ({"count": 1.5}, "here: count must be a whole number, got 1.5"),
        ({"count": None}, "here: count must be a whole number, got null"),
        ({"count": "x"}, "here: count must be a whole number, got x"),
        ({"scale": -1}, "here: scale must be at least 0, got -1.0"),
        ({"scale": math.nan}, "here: scale must be at least 0, got nan"),
        ({"scale": "x"}, "here: scale must be a number or null, got x"),
        ({"decays": [0.5, 1.0]}, "here: decays must be from 0 to below 1, got 1.0"),
        ({"decays": [0.5, "x"]}, "here: decays must be a list of 2 numbers in brackets, got x"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_limits(plain: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        from_plain(Settings, plain, where="here")
    assert str(caught.value) == says
    with pytest.raises(UserError, match=r"got true \(YAML"):
        from_plain(Settings, {"count": True}, where="here")


def settings_classes() -> Iterator[type]:
    """Every class of settings that has limits, of all domains and commands."""
    from triptych.tools.explain import figure  # noqa: F401 - declares options of its own

    for name in domains.names():
        import_kinds(domains.find_domain(name).config_class())
    waiting: list[type] = [Checked]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("triptych.") and not inspect.isabstract(kind):
            yield kind


def test_every_declared_limit_holds_in_python_too() -> None:
    """A `__post_init__` that forgets its base would leave them unchecked."""
    checked = 0
    for kind in settings_classes():
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if not [*limits_in(hint)]:
                continue
            made = object.__new__(kind)
            for field in dataclasses.fields(kind):
                object.__setattr__(made, field.name, None)
            object.__setattr__(made, name, -1)
            with pytest.raises(ValueError, match=f"{name} must be .*, got -1"):
                kind.__post_init__(made)
            checked += 1
    assert checked > 20


def test_a_field_that_is_declared_again_keeps_its_limits() -> None:
    for kind in settings_classes():
        for base in kind.__mro__[1:]:
            own, inherited = (getattr(each, "__annotations__", {}) for each in (kind, base))
            hints = get_type_hints(base, include_extras=True) if inherited else {}
            now = get_type_hints(kind, include_extras=True)
            for name in own.keys() & inherited.keys():
                assert not [*limits_in(hints[name])] or [*limits_in(now[name])], f"{kind}: {name}"
