"""A figure, the options of `triptych explain`, and the models that figures read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from triptych.errors import UserError
from triptych.types import Checked, NonNegativeInt, PositiveInt, Seed

if TYPE_CHECKING:
    from triptych.domains.base import TrainedModel


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(Checked):
    """Options of `triptych explain`."""

    out: str | None = None
    """Folder for the figures; needed for all but texts, which are printed without it."""
    checkpoint: str | None = None
    """Checkpoint (.ckpt), or pretrained:NAME, for the figures that show a trained model; null for
    the figure's own pretrained model."""
    plugin: str | None = None
    """Python module to import first, for a model with classes of its own."""
    sentence: str | None = None
    """Sentence to translate; null for an example in the language of the model."""
    layer: PositiveInt | None = None
    """Layer whose attention is drawn, counted from 1; null for the last."""
    label: NonNegativeInt | None = None
    """Class of the image that is sampled, for a model with classes; null for 3, or for the last
    class of a model with fewer."""
    seed: Seed = 0
    """Seed of sampling and of random examples."""

    description: ClassVar[str] = "Draw figures of the lectures from the project's own classes."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sentence is not None and not self.sentence.strip():
            raise ValueError("sentence is empty; expected a sentence to translate")


Content = dict[str, bytes]
"""Content of result files by name."""


@dataclass(frozen=True)
class Figure:
    """One figure: the names of its files, and the function that makes them.

    draw: takes the options and the trained model, None for a figure that shows none, and returns
    the content of each file. domain: of the models that it shows, None for no model. pretrained:
    model that it shows where the options name none. uses: options that it reads besides the folder
    and, where it shows a model, the checkpoint. A figure whose files all end in .txt is printed
    where the options name no folder.
    """

    files: tuple[str, ...]
    draw: Callable[[ExplainOptions, Any], Content]
    domain: str | None = None
    pretrained: str | None = None
    uses: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether the figure can be printed."""
        return all(name.endswith(".txt") for name in self.files)

    def check_options(self, name: str, options: ExplainOptions) -> None:
        """Raise UserError for an option that the figure does not read. name: of the figure."""
        reads = {"out", *self.uses, *(("checkpoint", "plugin") if self.domain else ())}
        for option, value in vars(options).items():
            if option not in reads and value != getattr(ExplainOptions, option):
                given = ", ".join(f"--{one}" for one in sorted(reads))
                raise UserError(f"the figure {name} has no option --{option}; expected {given}")


def example_sentence(model: TrainedModel, options: ExplainOptions) -> str:
    """Return the sentence of the options, or an example in the source language of a translator.

    Raises UserError for a language without an example.
    """
    if options.sentence is not None:
        return options.sentence
    language = model.settings.source_languages[0].partition("-")[0]
    if language not in EXAMPLES:
        raise UserError(
            f"there is no example sentence in {language!r}, which the model translates; "
            "give one with --sentence"
        )
    return EXAMPLES[language]


def example_label(n_classes: int, options: ExplainOptions) -> int | None:
    """Return the class of the options, or an example; None for a model without classes.

    A class that the model does not have is returned as it is, and refused where it is sampled.
    """
    if options.label is not None or not n_classes:
        return options.label
    return min(LABEL, n_classes - 1)


LABEL = 3
"""Example class of images."""
EXAMPLES = {
    "en": "A man plays the guitar.",
    "de": "Ein Mann spielt Gitarre.",
    "fr": "Un homme joue de la guitare.",
    "ko": "저는 학생입니다.",
    "zh": "機器學習",
}
"""Example sentences by language (ISO 639-1)."""
