"""A trained image model in use: sample, evaluate."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from triptych.core.heads import CategoricalHead
from triptych.decoding.quantize import Dtype
from triptych.decoding.sampling import Sampling
from triptych.domains.image import grid, task
from triptych.domains.image.baselines import histogram_bits_per_dim, uniform_bits_per_dim
from triptych.domains.image.data import DataConfig, evaluation_batches, read
from triptych.domains.image.dataset import ImageDataset, Split
from triptych.errors import UserError
from triptych.training.devices import device_named
from triptych.training.evaluate import Evaluation, Progress, evaluate, reading_from
from triptych.training.held_out import ALL, check_all
from triptych.training.known_law import beside
from triptych.training.weights import check_dtype, with_dtype

AT_ONCE = 64
"""Images drawn together; fixed, so that a seed gives the same images on every machine."""


class ImageModel:
    """A image model out of a checkpoint.

    dtype: fp32, bf16 or int8, as in `decoding.quantize`. Raises UserError for an impossible one.
    """

    def __init__(self, image_task: task.ImageTask, *, dtype: Dtype = "fp32") -> None:
        check_dtype(dtype, image_task.device)
        self.task = image_task.eval()
        self.dtype = dtype

    def with_dtype(self, dtype: Dtype) -> "ImageModel":
        """The same model, sampling and scoring in another precision."""
        return ImageModel(self.task, dtype=dtype)

    @property
    def config(self) -> task.Config:
        """All settings of the run that made it."""
        return self.task.config

    @property
    def levels(self) -> int:
        """Number of values that a sub-pixel can take; sampled values are 0..levels-1."""
        return self.task.model.levels

    def sample(
        self,
        count: int,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        label: int | None = None,
        compile: bool = False,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Draw images: uint8 [count, H, W, C], values 0..levels-1 (see `save_grid` for PNG).

        label: class of all images on a class-conditional model; None takes the classes in turn.
        compile: run each step through torch.compile.
        progress: called with (sub-pixels or pixels drawn, in all).
        Raises UserError for a label that the model does not have, for top_k and top_p on a model
        with logistics and for impossible values.
        """
        if count < 1:
            raise UserError(f"count must be at least 1 image, got {count}")
        sampling = self._sampling(temperature, top_k, top_p)
        labels = self._labels(count, label)
        check_dtype(self.dtype, self.task.device, compile=compile)
        model = with_dtype(self.task, self.dtype).model
        generator = torch.Generator(self.task.device).manual_seed(seed)
        steps = model.order.length
        parts = []
        for start in range(0, count, AT_ONCE):
            size = min(AT_ONCE, count - start)
            done = start * steps

            def report(step: int, _: int, done: int = done, size: int = size) -> None:
                if progress is not None:
                    progress(done + step * size, count * steps)

            part = model.sample(
                size,
                labels=None if labels is None else labels[start : start + size],
                sampling=sampling,
                generator=generator,
                progress=report,
                compile=compile,
            )
            parts.append(part)
        pixels = torch.cat(parts)  # [N, H, W, C]
        return pixels.cpu().numpy()

    def save_grid(
        self, path: str | Path, images: np.ndarray, *, columns: int | None = None
    ) -> np.ndarray:
        """Write sampled images as one PNG grid and return it: uint8 [H', W', C].

        columns: images a row; by default one a class where there are few, else about a square.
        """
        columns = columns or self.task.columns(len(images))
        return grid.write_grid(path, images, self.levels, columns=columns)

    def save_images(self, folder: str | Path, images: np.ndarray) -> list[Path]:
        """Write sampled images one by one as PNG and return the paths."""
        return grid.write_images(folder, images, self.levels)

    def evaluate(
        self,
        split: Split | Literal["all"] = "test",
        *,
        data: str | Path | None = None,
        batch_size: int | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Bits per dim over all sub-pixels of a split, and what stands beside it.

        split: train, validation, test, or all for every image of the folder `data`.
        data: a folder in place of the source's directory. batch_size: images scored at once,
        which changes no result beyond rounding (int8 scales its inputs for each
        batch). limit: score only the first so many images.
        Raises UserError where the data are missing or do not fit the model.
        """
        settings = self.config.data
        if data is not None:
            settings = replace(settings, source=reading_from(settings.source, str(data)))
        if split == ALL:
            check_all(self.config.data.source, data)
        images = self._fitting(read(settings, split))
        if limit is not None:
            if limit < 1:
                raise UserError(f"limit must be at least 1 image, got {limit}")
            images = images.pick(torch.arange(len(images))[:limit])
        size = settings.evaluation_batch_size if batch_size is None else batch_size
        batches = evaluation_batches(images, batch_size=size)
        judge = with_dtype(self.task, self.dtype)
        metrics, totals = evaluate(judge, batches, progress)
        details = {
            "dtype": self.dtype,
            "levels": self.levels,
            **({"given": "class"} if self.task.model.classes is not None else {}),
            "sub_pixels": int(totals["dims"]),
            "uniform_bits_per_dim": uniform_bits_per_dim(self.levels),
            "histogram_bits_per_dim": None if split == ALL else _histogram(settings, images),
            **beside(settings.source, split, limit, nats_per_unit=totals["dims"] * math.log(2)),
        }
        return Evaluation("image", split, metrics, int(totals["images"]), details)

    def _fitting(self, images: ImageDataset) -> ImageDataset:
        """The images, if the model is made for their shape, levels and classes."""
        found = (tuple(images.pixels.shape[1:]), images.levels)
        wanted = (self.task.model.shape, self.levels)
        if found != wanted:
            raise UserError(
                f"the model was trained on images of (height, width, channels) {wanted[0]} with "
                f"{wanted[1]} levels, these have {found[0]} with {found[1]}"
            )
        if self.task.model.classes is not None and (
            images.labels is None or images.class_names != self.task.class_names
        ):
            raise UserError(
                f"the model was trained with the classes {', '.join(self.task.class_names)}; "
                f"these images have {', '.join(images.class_names) or 'none'}"
            )
        return images

    def _sampling(self, temperature: float, top_k: int | None, top_p: float | None) -> Sampling:
        if not isinstance(self.task.model.core.head, CategoricalHead) and (top_k or top_p):
            raise UserError(
                "top_k and top_p cut a list of values, and this model predicts logistics, which "
                "have none; use temperature"
            )
        try:
            return Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
        except ValueError as error:
            raise UserError(str(error)) from error

    def _labels(self, count: int, label: int | None) -> torch.Tensor | None:
        if label is None:
            return self.task.turn_labels(count)
        names = self.task.class_names
        if self.task.model.classes is None:
            raise UserError(
                f"label is {label}, but this model was trained without classes "
                "(model.class_conditional is false)"
            )
        if not 0 <= label < len(names):
            raise UserError(
                f"label is {label}, but this model has the classes 0 to {len(names) - 1} "
                f"({', '.join(names)})"
            )
        return torch.full((count,), label, device=self.task.device)


def load(checkpoint: dict[str, Any], *, device: str = "cpu", dtype: Dtype = "fp32") -> ImageModel:
    """The model of a checkpoint's content (see `triptych.load`); device as in `device_named`."""
    return ImageModel(task.restore(checkpoint).to(device_named(device)), dtype=dtype)


def _histogram(settings: DataConfig, held_out: ImageDataset) -> float | None:
    """The histogram's bits per dim, or None where the training images are not at hand."""
    try:
        train = read(settings, "train")
    except UserError:
        return None
    return histogram_bits_per_dim(train.pixels, held_out.pixels, held_out.levels)
