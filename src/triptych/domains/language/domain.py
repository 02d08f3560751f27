"""Domain of text in one language: the options of its commands."""

from dataclasses import dataclass
from typing import Any, Literal

from triptych.domains import options
from triptych.domains.base import Domain
from triptych.types import PositiveInt

STANDARD_INPUT = "-"
LABELS = "labels.tsv"
"""Name of the file with the labels of lines."""
ANSWERS = "answers.tsv"
"""Name of the file with the answers to questions."""


@dataclass(frozen=True, kw_only=True)
class LanguageEvaluateOptions(options.DynamicScoreRequest, options.EvaluateOptions):
    """Score a model of text on a split of its data."""

    def report(self, result: dict[str, Any]) -> list[str]:
        lines = []
        for name, scores in result["details"]["simple_models"].items():
            by_model = ", ".join(f"{model} {value:.4f}" for model, value in scores.items())
            lines.append(f"{name} of simple models: {by_model}")
        if (unknown := result["details"]["unknown_tokens"]) >= 0.005:
            lines.append(f"{unknown:.1%} of the tokens scored are the unknown one")
        return lines


@dataclass(frozen=True, kw_only=True)
class LanguageSampleOptions(options.SampleOptions):
    """Write texts with a next-token model, fill masks with a masked-token model, or label lines.

    Lines are labelled by a model of a task with labels; one of SpanAnswer answers questions.
    """

    out: str
    """Folder for one .txt per text; created if missing."""
    prompt: str = ""
    """Text that every sample begins with, empty to begin anew; for a masked-token model a text in
    which [MASK] stands for each token to fill in."""
    length: PositiveInt | None = None
    """Maximum length of a text in tokens, prompt included; null for that of the training's
    examples, which is also the most. A text may end earlier. Of a next-token model."""
    lines: str | None = None
    """File with an example a line, its texts between tabs, - for standard input; a model of a task
    with labels writes the label and the probability of each into labels.tsv."""
    document: str | None = None
    """Text file in which a model of SpanAnswer finds the answer to the prompt, or to each line of
    --lines; answers.tsv has question, answer and its probability."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.document is not None and self.lines is None and not self.prompt.strip():
            raise ValueError("document is given without a question; expected prompt or lines too")

    def input_files(self) -> dict[str, str]:
        files = {"document": "a text file with the answers"}
        if self.lines != STANDARD_INPUT:
            files["lines"] = "a text file with an example a line, or - for standard input"
        return files

    def output_names(self) -> list[str]:
        if self.document is not None:
            return [ANSWERS]
        if self.lines is not None:
            return [LABELS]
        return [f"text-{index:02d}.txt" for index in range(self.count)]


@dataclass(frozen=True, kw_only=True)
class LanguageNewRunOptions(options.NewRunOptions):
    """Look at your texts and write a settings file for them, with comments."""

    data: str
    """Text file with one sentence a line, or folder of .txt files, of which names such as train.txt
    and test.txt tell the splits; for classification a table such as a .tsv file with a text and
    a label a row, or a folder of them."""
    task: Literal["next_token", "masked", "classification"] | None = None
    """What the model learns: next_token continues text, masked fills gaps (BERT), classification
    labels lines; null for classification of tables and next_token of others."""


class LanguageDomain(Domain):
    """Text in one language."""

    name = "language"
    evaluate_options = LanguageEvaluateOptions
    sample_options = LanguageSampleOptions
    new_run_options = LanguageNewRunOptions
    description = "triptych.tools.new_run.language"
    page = "triptych.tools.play.language"
    service = "triptych.tools.serve.services:language"
    limits = "Text unlike its data. It states what is false as fluently as what is true."


DOMAIN = LanguageDomain()
