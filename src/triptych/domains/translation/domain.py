"""Domain of translation: what its commands do and write."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from triptych.domains.base import Domain, FolderCommand, ProgressFactory
from triptych.domains.files import OutputFolder, read_input_lines
from triptych.domains.options import counted
from triptych.domains.translation.options import (
    NUMBERS,
    TranslationAttentionOptions,
    TranslationEvaluateOptions,
    TranslationTranslateOptions,
)
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.domains.translation.inference import TranslationModel
    from triptych.training.data import FixedBatches, ResumableLoader
    from triptych.training.module import TrainingModule


def write_attention(
    model: TranslationModel,
    options: TranslationAttentionOptions,
    out: OutputFolder,
    report: ProgressFactory,
) -> str:
    """Translate each sentence and write the attention weights of its translation."""
    from triptych.domains.translation.render import draw

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
    found = model.attention(
        list(lines.values()), beam=options.beam, layer=options.layer, head=options.head
    )
    numbers = []
    for stem, attended in zip(stems, found, strict=True):
        if attended is None:
            continue
        for suffix, drawing in zip(suffixes, draw(attended, encoder=options.encoder), strict=True):
            out.write(f"{stem}{suffix}.png", drawing)
        numbers.append({"drawing": f"{stem}.png", **asdict(attended)})
    out.write_json(NUMBERS, numbers)
    return f"{counted(len(numbers), 'sentence', 'sentences')} (.png, {NUMBERS}) in {out}"


class TranslationDomain(Domain):
    """Sentences in one language and their translations into another."""

    name: ClassVar[str] = "translation"
    evaluate_options = TranslationEvaluateOptions
    translate_options = TranslationTranslateOptions
    attention = FolderCommand(
        TranslationAttentionOptions,
        "Translate lines and draw, for each, the attention weights between source and translation.",
        write_attention,
    )

    def config_class(self) -> type[Any]:
        from triptych.domains.translation.config import Config

        return Config

    def prepare(
        self, config: Any, vocabulary: Any = None
    ) -> tuple[TrainingModule, ResumableLoader, FixedBatches]:
        from triptych.domains.translation.task import prepare

        return prepare(config, vocabulary)

    def restore(self, checkpoint: dict[str, Any], device: str = "auto") -> TranslationModel:
        from triptych.domains.translation.inference import restore

        return restore(checkpoint, device)


DOMAIN = TranslationDomain()
