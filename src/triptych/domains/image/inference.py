"""A trained image model in use: sampling, evaluation, attention maps. Needs no Lightning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.domains.base import Decoder
from triptych.domains.image.attention_maps import Pixel, attention_blocks, attention_maps
from triptych.domains.image.conditional import write_completions, write_upscaled
from triptych.domains.image.conditional_scores import (
    check_given_first,
    completion_scores,
    upscaling_scores,
)
from triptych.domains.image.domain import (
    ImageAttentionOptions,
    ImageEvaluateOptions,
    ImageSampleOptions,
)
from triptych.domains.image.given_pictures import filled_pixels
from triptych.domains.image.image_generation import ImageGenerator
from triptych.domains.image.metrics import ImageScores, histogram_bits_per_dim
from triptych.domains.options import ScoreRequest, check_layer_and_head, counted
from triptych.domains.pictures import render
from triptych.domains.pictures.config import DataConfig
from triptych.domains.pictures.data import ImageDataset
from triptych.domains.pictures.options import DRAWING, GRID, NUMBERS, image_names
from triptych.domains.pictures.splits import read_to_score
from triptych.domains.synthetic import known_entropy
from triptych.errors import UserError
from triptych.files.results import OutputFolder, json_bytes
from triptych.files.splits import ALL
from triptych.training.engine.evaluate import Evaluation, sum_scores
from triptych.types import Progress, ProgressFactory


class ImageModel(ImageScores, ImageGenerator):
    """A trained image model; vocabulary: of its data, as in `ImageDataset.vocabulary`."""

    def decoder(self) -> Decoder | None:
        model = self.full_model
        if model.factor is not None:
            return None
        order = {"order": model.order.coordinates.tolist()}
        return Decoder(model.core, model.order.length, model.conditioner.classes, order)

    def score_split(self, request: ScoreRequest, progress: Progress | None = None) -> Evaluation:
        """Return bits per dim over all sub-pixels of a split, and the bits per dim of baselines.

        split: train, validation, test, or all for every image of the folder `data`. batch_size: no
        effect beyond rounding (int8 measures the range of its inputs per batch). Raises UserError
        for missing data and for data that do not fit the model.
        """
        model = self.full_model
        settings, images = self._read_split(request)
        given = ["class"] if model.n_classes else []
        given += ["image averaged down"] if model.factor else []
        sums = sum_scores(
            self.model,
            self.score,
            images.fixed_batches(request.batch_size or settings.evaluation_batch_size),
            progress,
        )
        details = {
            "dtype": self.dtype,
            "levels": model.levels,
            **({"given": " and the ".join(given)} if given else {}),
            "sub_pixels": int(sums["dims"]),
            "uniform_bits_per_dim": math.log2(model.levels),
            "histogram_bits_per_dim": None
            if request.split == ALL
            else _histogram(settings, images),
            **known_entropy(settings.source),
        }
        return Evaluation(
            self.domain, request.split, self.metrics(sums), int(sums["images"]), details
        )

    def check_evaluation(self, options: ImageEvaluateOptions) -> None:
        if options.samples:
            self.upscaling_model()
        if options.mask is not None:
            self.needs_no_small_image("mask")
            check_given_first(self.full_model, self._filled(options.mask))

    def further_details(
        self, options: ImageEvaluateOptions, report: ProgressFactory
    ) -> dict[str, Any]:
        """Return scores of completion and of super-resolution, where the options ask for them."""
        found: dict[str, Any] = {}
        if options.mask is None and not options.samples:
            return found
        _, images = self._read_split(options)
        if options.mask is not None:
            filled = self._filled(options.mask)
            found |= completion_scores(
                self, images, filled, draws=options.draws, seed=options.seed,
                progress=report("images scored in two parts"),
            )  # fmt: skip
        if options.samples:
            found |= upscaling_scores(
                self, images.first(options.samples), seed=options.seed,
                progress=report("sampled positions"),
            )  # fmt: skip
        return found

    def _filled(self, mask: str) -> torch.Tensor:
        return filled_pixels(mask, *self.full_model.shape[:2])

    def _read_split(self, request: ScoreRequest) -> tuple[DataConfig, ImageDataset]:
        """Return the data settings and the first `limit` images of a split."""
        classes = self.full_model.n_classes > 0
        return read_to_score(self.data_settings, request, self.vocabulary, classes=classes)

    def attention(
        self,
        image: NDArray[np.uint8],
        pixels: Sequence[Pixel],
        *,
        label: int | None = None,
        layer: int | None = None,
        head: int | None = None,
    ) -> NDArray[np.float64]:
        """Return the attention weights of each predicted pixel: [len(pixels), H, W].

        They are the weights of the query that predicts the pixel's first channel, summed over the
        channels of each attended pixel; the rest to 1 is on the start vector. image: values
        [H, W, C]. label: class of the image, default 0. layer: from 1, None for the last. head:
        from 1, None for the mean of all heads.
        """
        layer = layer or self.settings.model.transformer.n_layers
        return attention_maps(self.full_model, image, pixels, label=label, layer=layer, head=head)

    def write_samples(
        self, options: ImageSampleOptions, out: OutputFolder, report: ProgressFactory
    ) -> str:
        """Sample images and write each as a PNG, and all as one grid."""
        levels, n_classes = self.full_model.levels, self.full_model.n_classes
        if options.complete is not None:
            images = write_completions(self, options, out, report)
        elif options.upscale is not None:
            images = write_upscaled(self, options, out, report)
        else:
            progress = report("sampled positions")
            images = self.sample(**options.arguments_of(self.sample), progress=progress)
            render.write_grid(out.path / GRID, images, levels, n_classes)
        scaled = render.to_bytes(images, levels)
        for name, image in zip(image_names(len(images)), scaled, strict=True):
            render.write_png(out.path / name, image)
        return f"{counted(len(images), 'image', 'images')} and {GRID} are in {out}"

    def write_attention(
        self, options: ImageAttentionOptions, out: OutputFolder, report: ProgressFactory
    ) -> str:
        """Sample an image and write the attention weights that predicted some of its pixels."""
        sizes = self.settings.model.transformer
        check_layer_and_head(
            options.layer, options.head, n_layers=sizes.n_layers, n_heads=sizes.n_heads
        )
        layer = options.layer or sizes.n_layers
        pixels = options.pixels(*self.full_model.shape[:2])
        label = options.label if self.full_model.n_classes else None
        progress = report("sampled positions")
        image = self.sample(1, seed=options.seed, label=label, progress=progress)[0]  # [H, W, C]
        maps = self.attention(image, pixels, label=label, layer=layer, head=options.head)
        blocks = attention_blocks(self.full_model, pixels)
        heads = "mean of all heads" if options.head is None else f"head {options.head}"
        title = (
            f"layer {layer}, {heads}: weights (red) of the prediction of a pixel (blue),\n"
            "query block (solid) and memory block (dashed)"
        )
        drawing = render.draw_attention(
            image, self.full_model.levels, pixels, maps, blocks=blocks, title=title
        )
        out.write(DRAWING, drawing)
        numbers = {
            "layer": layer,
            "head": options.head,
            "label": label,
            "image": image.tolist(),
            "pixels": [
                {
                    "row": row,
                    "column": column,
                    "weights": weights.tolist(),
                    "query_block": np.argwhere(query_block).tolist(),
                    "memory_block": np.argwhere(memory_block).tolist(),
                }
                for (row, column), weights, (query_block, memory_block) in zip(
                    pixels, maps, blocks, strict=True
                )
            ],
        }
        out.write(NUMBERS, json_bytes(numbers))
        return f"{DRAWING} and {NUMBERS} are in {out}"


def restore(checkpoint: dict[str, Any], device: str = "cpu") -> ImageModel:
    """Return the trained model of a checkpoint's content."""
    return ImageModel.restore(checkpoint, device)


def _histogram(settings: DataConfig, held_out: ImageDataset) -> float | None:
    """Return the histogram's bits per dim; None where the training images are missing."""
    try:
        train = settings.read("train")
    except UserError:
        return None
    return histogram_bits_per_dim(train.pixels, held_out.pixels, held_out.levels)
