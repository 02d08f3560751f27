"""Similarity of two texts, in either order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from triptych.core.models.sequence_vector import SequenceTaskModel
from triptych.domains.language.labelled_examples import LabelledBatch
from triptych.domains.language.tasks.labelled import LabelledTask


@dataclass(frozen=True)
class Similarity(LabelledTask):
    """Predict whether two texts are similar, whatever their order (Radford et al. 2018, figure 1).

    Both orders are read and their vectors are added. The labels are classes, such as the same and
    another meaning.
    """

    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        if len(texts) != 2:
            raise ValueError(f"has {len(texts)} texts; Similarity reads two texts and a label")
        return [tuple(texts), tuple(reversed(texts))]

    def logits(self, model: SequenceTaskModel, batch: LabelledBatch) -> Tensor:
        vectors = model.vectors(batch.tokens, batch.segments, batch.padding)  # [B, 2, D]
        logits: Tensor = model.task_head(vectors.sum(1))  # [B, C]
        return logits
