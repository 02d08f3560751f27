"""What use of a trained model needs besides its weights and its vocabulary. Needs no Lightning."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

from torch import nn

from triptych.types import Checked, PositiveFloat


@dataclass(frozen=True)
class ModelSettings(Checked):
    """Settings with which a trained model is opened; a domain adds what its use needs.

    They are keys of the header of a checkpoint (see `training.checkpoint`). Sources of data,
    optimisers and settings of the run are none of them.
    """

    model: Any
    """Sizes and parts of the model; `model.transformer` is its `TransformerConfig`."""
    lora_alpha: PositiveFloat = field(default=16.0, kw_only=True)
    """Factor of the low-rank adapters among the weights, which are merged when the model is
    opened."""

    @classmethod
    def from_header(cls, header: dict[str, Any]) -> Self:
        """Return the settings that the header of a checkpoint has.

        Raises UserError for a misspelt key, a wrong type, an impossible value, and a part whose
        class is outside Triptych and not imported.
        """
        from triptych.config.schema import from_plain

        plain = {f.name: header[f.name] for f in fields(cls) if f.name in header}
        return from_plain(cls, plain, where="the settings of the model")

    def build_model(self, vocabulary: Any) -> nn.Module:
        """Return a model with initial weights for data of this vocabulary.

        Raises ValueError for settings that do not fit together.
        """
        raise NotImplementedError
