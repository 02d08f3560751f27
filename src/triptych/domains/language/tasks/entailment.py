"""Relation of two texts, such as entailment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from triptych.core.models.sequence_vector import SequenceTaskModel
from triptych.domains.language.labelled_examples import LabelledBatch
from triptych.domains.language.tasks.labelled import LabelledTask


@dataclass(frozen=True)
class Entailment(LabelledTask):
    """Predict the relation of a text to a second one, which are read as one row in this order."""

    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        if len(texts) != 2:
            raise ValueError(f"has {len(texts)} texts; Entailment reads two texts and a label")
        return [tuple(texts)]

    def logits(self, model: SequenceTaskModel, batch: LabelledBatch) -> Tensor:
        vectors = model.vectors(batch.tokens, batch.segments, batch.padding)  # [B, 1, D]
        logits: Tensor = model.task_head(vectors.squeeze(1))  # [B, C]
        return logits
