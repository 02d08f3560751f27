"""How models of text read and write it, for libraries that run them without Triptych."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class TextFormat:
    """Tokenizers and special ids of a model of text.

    A tokenizer is the content of a tokenizer.json of Hugging Face's library, whose ids are those of
    the model, the special ones included.
    """

    PAD: ClassVar[int] = 0
    START: ClassVar[int] = 1
    END: ClassVar[int] = 2

    specials: tuple[str, ...]
    """Names of padding, start and end, and of the mask in a model that has one."""
    forbidden: tuple[int, ...]
    """Ids that the model never writes."""
    max_length: int
    """Longest text in tokens."""
    source: dict[str, Any]
    """Tokenizer of the text that the model reads."""
    target: dict[str, Any] | None = None
    """Tokenizer of the text that it writes; None for that of `source`."""
    translates: bool = False
    """Whether a text is read whole, with its end, and not continued after a start."""

    def names(self, *, target: bool = False) -> list[str]:
        """Return the name of each id of the source, or of the target."""
        tokenizer = self.target if target and self.target is not None else self.source
        vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
        return sorted(vocabulary, key=vocabulary.__getitem__)
