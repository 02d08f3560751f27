"""Limits of what a visitor of the page may ask for, each refused in one sentence."""

from __future__ import annotations

from typing import Any, TypeVar

from triptych.errors import UserError

Number = TypeVar("Number", int, float)

MAX_COUNT = 8
"""Largest number of samples at a time."""
MAX_TEMPERATURE = 2.0
MAX_SEED = 2**31 - 1


def within(name: str, value: Any, least: Number, most: Number) -> Number:
    """Return a number of a form as the type of its limits; UserError where it is outside of them.

    value: what the browser sent, None for an empty field.
    """
    kind = type(least)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= most
        or kind(value) != value
    ):
        what = "a whole number" if kind is int else "a number"
        shown = "nothing" if value is None else str(value)[:40]
        raise UserError(f"{name} needs {what} from {least} to {most}; found {shown}")
    return kind(value)


def checked_text(text: str, most: int, *, may_be_empty: bool = False) -> str:
    """Return a text without white space at its ends; UserError where it is empty or too long.

    most: characters.
    """
    if not (text := text.strip()) and not may_be_empty:
        raise UserError("There is no text yet: type one first.")
    if len(text) > most:
        raise UserError(f"The text has {len(text)} characters; expected at most {most}.")
    return text


def sampling(seed: Any, temperature: Any, count: Any) -> dict[str, Any]:
    """Return the arguments of a model's sampling; UserError for values outside of the limits."""
    return {
        "seed": within("Seed", seed, 0, MAX_SEED),
        "temperature": within("Temperature", temperature, 0.0, MAX_TEMPERATURE),
        "count": within("Number of samples", count, 1, MAX_COUNT),
    }
