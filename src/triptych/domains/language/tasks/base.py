"""Interface of the tasks of a run: the examples, the model, the loss and the scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from triptych.domains.language.data import Examples
from triptych.domains.language.domain import LanguageScoreRequest
from triptych.domains.language.sources.base import Source, TextSource
from triptych.domains.language.vocabulary import Vocabulary
from triptych.errors import UserError
from triptych.training.finetune.parts import InitialWeights
from triptych.types import Checked, Progress

if TYPE_CHECKING:
    from triptych.domains.language.model import ModelConfig


@dataclass(frozen=True)
class FurtherScores:
    """Scores of a split besides those of every validation."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Ratios by name; the name contains the unit."""
    simple_models: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metric -> name of a simple model -> its score."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further results; JSON types only."""


class Task(Checked, ABC):
    """What a run trains; subclasses are frozen dataclasses that settings name by class path.

    A task needs no Lightning: trained models use it too.
    """

    monitor: ClassVar[str]
    """Metric, without "val/", whose lowest value selects the best checkpoint."""

    @abstractmethod
    def texts(self, source: Source) -> Iterable[str]:
        """Return the training texts, from which the tokenizer is learnt.

        Raises UserError for a source of another kind.
        """

    def labels(self, source: Source) -> tuple[str, ...]:
        """Return the names of the classes that the task predicts; none by default."""
        return ()

    @abstractmethod
    def build_model(self, model: ModelConfig, vocabulary: Vocabulary, max_length: int) -> nn.Module:
        """Return the model with initial weights; max_length: longest example in tokens."""

    @abstractmethod
    def encode(
        self, source: Source, split: str, vocabulary: Vocabulary, max_length: int
    ) -> Examples:
        """Return the examples of a split, each of at most max_length tokens.

        Raises UserError for missing data and for a source of another kind.
        """

    def initial_weights(
        self, header: dict[str, Any], labels: tuple[str, ...], weights: dict[str, Tensor]
    ) -> InitialWeights:
        """Return what the task's model takes from another one, all weights by default.

        header, weights: of that model's checkpoint. labels: of this run. Raises UserError for a
        model that has no part for it.
        """
        return InitialWeights(weights)

    @abstractmethod
    def training_loss(self, model: Any, batch: Any) -> tuple[Tensor, Tensor | int]:
        """Return the objective, a mean over the targets without padding, and their number."""

    @abstractmethod
    def score(self, model: Any, batch: Any) -> dict[str, Tensor]:
        """Return sums over a batch as float64 scalars; called in eval mode without gradients.

        Scoring needs no training data.
        """

    @abstractmethod
    def metrics(self, totals: dict[str, float]) -> dict[str, float]:
        """Return ratios from the sums over a whole split; names contain the unit."""

    def table(
        self, model: Any, examples: Any, vocabulary: Vocabulary, seed: int
    ) -> list[dict[str, str]]:
        """Return rows to look at after a validation, by the names of their columns; [] for none.

        examples: of the validation split.
        """
        return []

    def further_scores(
        self,
        model: Any,
        examples: Any,
        training: Any | None,
        request: LanguageScoreRequest,
        *,
        max_tokens: int,
        progress: Progress | None,
    ) -> FurtherScores:
        """Return scores that `triptych evaluate` adds, such as those of simple models.

        examples: of the split, of which the first `limit` are scored. training: examples of the
        training split, None where they cannot be read. max_tokens: of a batch.
        """
        return FurtherScores()


def training_lines(source: Source, task: Task) -> Iterable[str]:
    """Return the sentences of the training split of a source of plain text."""
    documents = text_source(source, task).documents("train")
    return (sentence for document in documents for sentence in document)


def text_source(source: Source, task: Task) -> TextSource:
    """Return a source of plain text; UserError for a source of another kind."""
    if not isinstance(source, TextSource):
        raise UserError(
            f"the task {type(task).__name__} reads plain text, and data.source is "
            f"{type(source).__name__}; expected TextFiles or Docstrings"
        )
    return source
