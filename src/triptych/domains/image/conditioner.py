"""Condition of an image: its class, and the image averaged down for super-resolution."""

from __future__ import annotations

from torch import Tensor, nn

from triptych.core.models.base import Condition, Conditioner, Memory
from triptych.core.models.encoder_only import SequenceEncoder


class ImageConditioner(Conditioner):
    """An embedding of the class at every position, and the memory of a small image; both optional.

    encoder: of the pixels of a small image; None for a model without super-resolution.
    """

    def __init__(self, encoder: SequenceEncoder | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.classes: nn.Embedding | None = None

    def add_classes(self, n_classes: int, d_model: int) -> None:
        """Make the embeddings of the classes."""
        self.classes = nn.Embedding(n_classes, d_model)
        nn.init.normal_(self.classes.weight, std=d_model**-0.5)

    def forward(self, labels: Tensor | None, small: Tensor | None) -> Condition:
        """Return the condition of classes int64 [B] and small images, uint8 [B, h, w, C].

        Raises ValueError for a small image exactly if the model reads none, or the reverse.
        """
        if (small is None) != (self.encoder is None):
            raise ValueError("a small image is needed exactly by a model of super-resolution")
        vectors = None if self.classes is None else self.classes(labels).unsqueeze(1)  # [B, 1, D]
        if self.encoder is None or small is None:
            return Condition(vectors)
        features = self.encoder(small.long().flatten(1, 2))  # [B, h w, D]
        return Condition(vectors, Memory(features))
