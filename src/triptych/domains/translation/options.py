"""Options of the commands of the translation domain.

Apart from `domain`, because jsonargparse executes the imports under TYPE_CHECKING of a module whose
dataclasses it parses, and these load torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from triptych.domains.options import AttentionOptions, EvaluateOptions, TranslateOptions, at_least

NUMBERS = "attention.json"


@dataclass(frozen=True, kw_only=True)
class TranslationTranslateOptions(TranslateOptions):
    """Options of `triptych translate`."""

    length_penalty: str = "gnmt:0.6"
    """Divisor of a hypothesis's log-probability: 0 (none), 1 (average: its length in tokens) or
    gnmt:ALPHA, ((5 + length) / 6)^ALPHA."""

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "length_penalty": self.length_penalty}


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluateOptions(EvaluateOptions):
    """Options of `triptych evaluate translation`."""

    beam: int = 4
    """Number of hypotheses in beam search, 1 for greedy search."""
    length_penalty: str = "gnmt:0.6"
    """Divisor of a hypothesis's log-probability: 0 (none), 1 (average: its length in tokens) or
    gnmt:ALPHA, ((5 + length) / 6)^ALPHA."""
    hypotheses: str | None = None
    """File for the translations, one a line in the order of the split, as `sacrebleu REF -i FILE`
    reads them; an existing file is kept unless --overwrite is given."""

    kept_files: ClassVar[tuple[str, ...]] = ("hypotheses",)

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that define no search."""
        super().__post_init__()
        at_least(self, 1, "beam")

    def settings(self) -> dict[str, Any]:
        return {
            "beam": self.beam,
            "length_penalty": self.length_penalty,
            "hypotheses": self.hypotheses is not None,
        }

    def result_files(self, result: dict[str, Any]) -> dict[str, bytes]:
        lines = result["details"].pop("hypotheses", [])
        return {"hypotheses": "".join(f"{line}\n" for line in lines).encode()}


@dataclass(frozen=True, kw_only=True)
class TranslationAttentionOptions(AttentionOptions):
    """Options of `triptych attention translation`."""

    out: str
    """Folder for one .png per sentence and for attention.json; created if missing."""
    input: str | None = None
    """Text file (UTF-8), one sentence a line; null for standard input."""
    encoder: bool = False
    """Draw the encoder's self-attention too, as one more .png per sentence."""
    beam: int = 4
    """Number of hypotheses in beam search, 1 for greedy search."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers below 1."""
        super().__post_init__()
        at_least(self, 1, "beam")

    def input_files(self) -> dict[str, str]:
        return {"input": "a text file with one sentence a line"}

    def output_names(self) -> list[str]:
        return [NUMBERS]
