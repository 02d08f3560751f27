"""Sampling of a trained image model: new images, completions, and large images of small ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.core.heads import CategoricalHead
from triptych.decoding.sampling import SampleKeywords, SampleRequest
from triptych.domains.base import TrainedModel
from triptych.domains.image.model import ImageSettings, ImageTransformer
from triptych.errors import UserError
from triptych.training.engine.evaluate import device_of

DEFAULT_PASSES = 5
"""Passes of resampling where given pixels come after filled ones."""


class ImageGenerator(TrainedModel):
    """Trained image model, as far as it samples; `inference.ImageModel` is the whole of it."""

    settings_class = ImageSettings
    settings: ImageSettings
    full_model: ImageTransformer
    model: Any  # ImageTransformer

    def sample(
        self, count: int, *, label: int | None = None, **options: Unpack[SampleKeywords]
    ) -> NDArray[np.uint8]:
        """Sample images: uint8 [count, H, W, C] with values 0 .. levels-1.

        label: class of all images of a class-conditional model; None for one class after the other.
        options: see `SampleKeywords`; the progress counts sampled positions.
        Raises UserError for a label that the model does not have, and for top_k and top_p on a
        mixture of logistics.
        """
        self.needs_no_small_image("sampling without pictures")
        request, labels = self._request(count, options), self.labels_for(count, label)
        pixels: torch.Tensor = self.model.sample(request, labels=labels)
        return pixels.cpu().numpy()

    def complete(
        self,
        images: NDArray[np.uint8],
        filled: NDArray[np.bool_],
        count: int = 1,
        *,
        labels: Sequence[int] | None = None,
        passes: int | None = None,
        **options: Unpack[SampleKeywords],
    ) -> NDArray[np.uint8]:
        """Sample some pixels of images given the others: uint8 [N, count, H, W, C].

        images: values [N, H, W, C]. filled: [H, W], True for a pixel to sample; the others stay.
        labels: class of each image, for class-conditional models. passes: of resampling, so that
        given pixels count that come later in the generation order; None for 0 where there are none,
        else 5. options: see `SampleKeywords`. Raises UserError for settings with which a model
        cannot be resampled.
        """
        self.needs_no_small_image("completion")
        model, device = self.full_model, device_of(self.full_model)
        unknown, request = torch.from_numpy(filled), self._request(count, options)
        if passes is None:
            passes = 0 if model.given_first(unknown) else DEFAULT_PASSES
        categorical = isinstance(model.core.head, CategoricalHead)
        how, temperature = request.sampling, request.sampling.temperature
        filters = how.top_k or how.top_p
        if passes and (not temperature or filters or (temperature != 1 and not categorical)):
            raise UserError(
                "passes need a temperature above 0, without top_k and top_p, and of 1 for a model "
                "of logistics: set them so, or passes to 0"
            )
        pixels = torch.from_numpy(images).to(device).repeat_interleave(count, 0)
        made: torch.Tensor = self.model.complete(
            pixels, unknown, request, passes=passes, labels=self._repeated_labels(labels, count)
        )
        return made.cpu().numpy().reshape(-1, count, *images.shape[1:])

    def upscale(
        self,
        small: NDArray[np.uint8],
        count: int = 1,
        *,
        labels: Sequence[int] | None = None,
        **options: Unpack[SampleKeywords],
    ) -> NDArray[np.uint8]:
        """Sample images from small ones: [N, h, w, C] -> uint8 [N, count, H, W, C].

        small: values 0 .. levels-1, such as the means of squares of pixels. labels: as in
        `complete`. options: see `SampleKeywords`. Raises UserError for a model without
        super-resolution.
        """
        model, _ = self.upscaling_model()
        given = torch.from_numpy(small).to(device_of(model)).repeat_interleave(count, 0)
        made: torch.Tensor = self.model.sample(
            self._request(len(given), options),
            labels=self._repeated_labels(labels, count),
            small=given,
        )
        return made.cpu().numpy().reshape(len(small), count, *model.shape)

    def upscaling_model(self) -> tuple[ImageTransformer, int]:
        """Return the model and its factor; UserError for a model without super-resolution."""
        if self.full_model.factor is None:
            raise UserError(
                "this model has no encoder of small images (model.super_resolution.factor is "
                "null): train one with a config such as configs/image/digits-super-resolution.yaml"
            )
        return self.full_model, self.full_model.factor

    def needs_no_small_image(self, what: str) -> None:
        """Raise UserError for a model of super-resolution."""
        if self.full_model.factor is not None:
            raise UserError(
                f"{what} needs a model without super-resolution; this one samples images from "
                "small ones, with sample --upscale"
            )

    def _repeated_labels(self, labels: Sequence[int] | None, count: int) -> torch.Tensor | None:
        """Return the class of each image `count` times, int64 [N count].

        Raises UserError for classes that the model does not have, or that are missing.
        """
        if (labels is None) != (self.full_model.n_classes == 0):
            raise UserError("labels are needed exactly for a class-conditional model")
        if labels is None:
            return None
        return torch.tensor(labels, device=device_of(self.full_model)).repeat_interleave(count)

    def _request(self, count: int, options: SampleKeywords) -> SampleRequest:
        """Return the request; UserError for settings that the model's head does not have."""
        request = SampleRequest.of(count, **options)
        filters = request.sampling.top_k or request.sampling.top_p
        if not isinstance(self.full_model.core.head, CategoricalHead) and filters:
            raise UserError(
                "top_k and top_p need a categorical head; this model predicts a mixture of "
                "logistics: use temperature"
            )
        return request

    def labels_for(self, count: int, label: int | None) -> torch.Tensor | None:
        if label is None:
            return self.full_model.cyclic_labels(count)
        names = self.vocabulary["class_names"] if self.full_model.n_classes else []
        if not 0 <= label < len(names):
            raise UserError(
                f"label is {label}, but this model has {len(names)} classes, counted from 0: "
                f"{', '.join(names) or 'none (model.class_conditional is false)'}"
            )
        return torch.full((count,), label, device=device_of(self.full_model))
