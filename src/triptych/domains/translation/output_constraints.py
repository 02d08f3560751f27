"""Constraints on translations, as options name them. Imports no heavy library."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from triptych.errors import UserError
from triptych.types import Checked, NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class OutputConstraints(Checked):
    """What every translation must fulfil; the defaults demand nothing."""

    prefix: str | None = None
    """Text that the translation begins with."""
    require: tuple[str, ...] = ()
    """Phrases that the translation contains."""
    min_length: NonNegativeInt = 0
    """Minimum number of tokens, without the end."""
    max_length: PositiveInt | None = None
    """Maximum number of tokens, without the end; None for a limit that depends on the source."""
    no_repeat_ngram: PositiveInt | None = None
    """Length of the runs of tokens that may occur once only; None for no such rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prefix == "":
            raise UserError("prefix is empty; expected the beginning of a translation")
        if any(not phrase.strip() for phrase in self.require):
            raise UserError("require has an empty phrase; expected text that must appear")
        if self.max_length is not None and self.min_length > self.max_length:
            raise UserError(
                f"min_length ({self.min_length}) must not be larger than max_length "
                f"({self.max_length})"
            )

    @property
    def of_whole_lines(self) -> bool:
        """Whether they concern a line as a whole, which must then not be translated in parts."""
        return self != OutputConstraints(no_repeat_ngram=self.no_repeat_ngram)

    @classmethod
    def of(cls, options: dict[str, Any], *, only: bool = False) -> OutputConstraints:
        """Return the constraints among the options of a translation by their names.

        only: raise TypeError where another option is among them.
        """
        names = {field.name for field in fields(cls)}
        chosen = {name: value for name, value in options.items() if only or name in names}
        if "require" in chosen:
            phrases = chosen["require"]
            chosen["require"] = (phrases,) if isinstance(phrases, str) else tuple(phrases or ())
        return cls(**chosen)
