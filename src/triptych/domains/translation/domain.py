"""Domain of translation: the options of its commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from triptych.domains.base import Domain
from triptych.domains.options import AttentionOptions, EvaluateOptions, TranslateOptions
from triptych.errors import at_least

NUMBERS = "attention.json"


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluateOptions(EvaluateOptions):
    """Options of `triptych evaluate translation`."""

    beam: int = TranslateOptions.beam
    """Number of hypotheses in beam search, 1 for greedy search."""
    length_penalty: str = TranslateOptions.length_penalty
    """Divisor of a hypothesis's log-probability: 0 (none), 1 (average: its length in tokens) or
    gnmt:ALPHA, ((5 + length) / 6)^ALPHA."""
    hypotheses: str | None = None
    """File for the translations, one a line in the order of the split, as `sacrebleu REF -i FILE`
    reads them; an existing file is kept unless --overwrite is given."""

    kept_files: ClassVar[tuple[str, ...]] = ("hypotheses",)
    overwrite_help = "Replace an existing file of --hypotheses."

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "beam")

    def result_files(self, result: dict[str, Any]) -> dict[str, bytes]:
        lines = result["details"].pop("hypotheses")
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
    beam: int = TranslateOptions.beam
    """Number of hypotheses in beam search, 1 for greedy search."""

    description = (
        "Translate lines and draw, for each, the attention weights between source and translation."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "beam")

    def input_files(self) -> dict[str, str]:
        return {"input": "a text file with one sentence a line"}

    def output_names(self) -> list[str]:
        return [NUMBERS]


class TranslationDomain(Domain):
    """Sentences in one language and their translations into another."""

    name = "translation"
    evaluate_options = TranslationEvaluateOptions
    translate_options = TranslateOptions
    attention_options = TranslationAttentionOptions


DOMAIN = TranslationDomain()
