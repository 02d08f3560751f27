"""All settings of a translation run."""

from __future__ import annotations

from dataclasses import dataclass, field

from triptych.domains.translation.data import DataConfig
from triptych.domains.translation.model import ModelConfig
from triptych.training.optim import OptimConfig
from triptych.training.run_config import RunConfig


@dataclass(frozen=True)
class Config:
    """All settings of a translation run."""

    data: DataConfig = field(default_factory=DataConfig)
    """Sentence pairs, vocabulary and batches."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """Sizes of the model and label smoothing."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer and learning rate."""
    run: RunConfig = field(default_factory=RunConfig)
    """Name, folder and seed of the run."""

    def __post_init__(self) -> None:
        if self.model.share_embeddings == "all" and not self.data.shared_vocabulary:
            raise ValueError(
                "model.share_embeddings is all, which needs one vocabulary for both sides, and "
                "data.shared_vocabulary is false; expected share_embeddings target or none"
            )
