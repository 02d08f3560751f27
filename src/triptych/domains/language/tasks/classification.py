"""Classification of one text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from triptych.core.models.sequence_vector import SequenceTaskModel
from triptych.domains.language.labelled_examples import LabelledBatch
from triptych.domains.language.tasks.labelled import LabelledTask


@dataclass(frozen=True)
class Classification(LabelledTask):
    """Predict the class of a text (Devlin et al. 2018, section 4.1; Radford et al. 2018)."""

    def rows(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        if len(texts) != 1:
            raise ValueError(f"has {len(texts)} texts; Classification reads one text and a label")
        return [tuple(texts)]

    def logits(self, model: SequenceTaskModel, batch: LabelledBatch) -> Tensor:
        vectors = model.vectors(batch.tokens, batch.segments, batch.padding)  # [B, 1, D]
        logits: Tensor = model.task_head(vectors.squeeze(1))  # [B, C]
        return logits
