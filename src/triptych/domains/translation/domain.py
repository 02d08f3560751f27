"""Domain of translation: options of its commands and the files that they write."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from triptych.domains.base import Domain, Report, Verb
from triptych.domains.files import OutputFolder, read_input_lines
from triptych.domains.options import (
    AttentionOptions,
    EvaluateOptions,
    TranslateOptions,
    at_least,
    counted,
)
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.domains.translation.attention import Attended
    from triptych.domains.translation.inference import Translator
    from triptych.training.data import FixedBatches, ResumableLoader
    from triptych.training.module import TrainingModule

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


def write_attention(
    model: Translator, options: TranslationAttentionOptions, out: OutputFolder, report: Report
) -> str:
    """Translate each sentence and write the attention weights of its translation."""
    from triptych.domains.translation.attention import attend_lines

    lines = {
        number: line
        for number, line in enumerate(read_input_lines(options.input), start=1)
        if line.strip()
    }
    if not lines:
        name = options.input or "standard input"
        raise UserError(f"{name} has no sentence; expected at least one line with text")
    suffixes = ["", "-encoder"] if options.encoder else [""]
    stems = [f"sentence-{number:03d}" for number in lines]
    out.check_free([NUMBERS, *(f"{stem}{suffix}.png" for stem in stems for suffix in suffixes)])
    found = attend_lines(
        model, list(lines.values()), beam=options.beam, layer=options.layer, head=options.head
    )
    numbers = []
    for stem, attended in zip(stems, found, strict=True):
        if attended is None:
            continue
        for suffix, drawing in zip(suffixes, draw(attended, options.encoder), strict=True):
            out.write(f"{stem}{suffix}.png", drawing)
        numbers.append({"drawing": f"{stem}.png", **asdict(attended)})
    out.write_json(NUMBERS, numbers)
    return f"{counted(len(numbers), 'sentence', 'sentences')} (.png, {NUMBERS}) in {out}"


def draw(attended: Attended, encoder: bool) -> list[bytes]:
    """Return PNGs of the cross-attention and, if asked for, of the encoder's self-attention.

    Prints the characters that no installed font has.
    """
    from triptych.domains.translation.attention_picture import fonts_for, heat_map

    characters = set("".join([*attended.source_pieces, *attended.target_pieces]))
    families, missing = fonts_for(characters)
    if missing:
        print(
            f"no installed font has a letter for {' '.join(sorted(missing))}: the drawing has "
            "boxes in their place; a font such as Noto Sans CJK covers most scripts",
            file=sys.stderr,
        )
    heads = "mean of all heads" if attended.head is None else f"head {attended.head}"
    where = f"layer {attended.layer}, {heads}"
    source, target = attended.source_pieces, attended.target_pieces
    drawn = [("cross-attention", attended.cross, target, "translation", "source")]
    if encoder:
        drawn.append(("self-attention of the encoder", attended.encoder, source, "query", "key"))
    return [
        heat_map(
            weights,
            rows,
            source,
            title=f"{what}, {where}",
            reading=queries,
            read=keys,
            families=families,
        )
        for what, weights, rows, queries, keys in drawn
    ]


class TranslationDomain(Domain):
    """Sentences in one language and their translations into another."""

    name: ClassVar[str] = "translation"
    evaluate_options = TranslationEvaluateOptions
    translate_options = TranslationTranslateOptions
    attention = Verb(
        TranslationAttentionOptions,
        "Translate lines and draw, for each, the attention weights between source and translation.",
        write_attention,
    )

    def config_class(self) -> type[Any]:
        from triptych.domains.translation.task import Config

        return Config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        from triptych.domains.translation.task import prepare

        return prepare(config, vocabulary)

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> Translator:
        from triptych.domains.translation.inference import load

        return load(checkpoint, device=device)


DOMAIN = TranslationDomain()
