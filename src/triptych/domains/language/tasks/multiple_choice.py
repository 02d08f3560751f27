"""Choice among candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from triptych.core.models.sequence_vector import SequenceTaskModel
from triptych.domains.language.labelled_examples import LabelledBatch
from triptych.domains.language.sources.base import Source
from triptych.domains.language.tasks.labelled import LabelledTask, labelled_source


@dataclass(frozen=True)
class MultipleChoice(LabelledTask):
    """Choose one of several candidates for a context (Radford et al. 2018, section 3.3).

    Context and candidate are a row; each row has one score, and a softmax over the candidates gives
    their probabilities.
    """

    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        if len(texts) < 3:
            raise ValueError(
                f"has {len(texts)} texts; MultipleChoice reads a context, two candidates or more "
                "and the number of the right one"
            )
        return [(texts[0], candidate) for candidate in texts[1:]]

    def labels(self, source: Source) -> tuple[str, ...]:
        """Return the numbers of the candidates from 1."""
        first = labelled_source(source, self).examples("train")[0]
        return tuple(str(number) for number in range(1, len(first.texts)))

    def n_outputs(self, labels: Sequence[str]) -> int:
        return 1

    def logits(self, model: SequenceTaskModel, batch: LabelledBatch) -> Tensor:
        vectors = model.vectors(batch.tokens, batch.segments, batch.padding)  # [B, R, D]
        logits: Tensor = model.task_head(vectors).squeeze(-1)  # [B, R]
        return logits
