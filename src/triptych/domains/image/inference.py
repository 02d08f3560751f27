"""A trained image model in use: samples, completions, large images of small ones, scores."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from triptych.core.attention.cross import capture_attention
from triptych.core.heads import CategoricalHead
from triptych.decoding.sampling import SampleKeywords, SampleRequest
from triptych.domains.base import Decoder, TrainedModel
from triptych.domains.image.domain import (
    ImageAttentionOptions,
    ImageEvaluateOptions,
    ImageSampleOptions,
)
from triptych.domains.image.given import filled_pixels, write_given
from triptych.domains.image.metrics import (
    ImageScores,
    completion_scores,
    histogram_bits_per_dim,
    upscaling_scores,
)
from triptych.domains.image.model import ImageSettings, ImageTransformer
from triptych.domains.options import ScoreRequest, check_layer_and_head
from triptych.domains.pictures import render
from triptych.domains.pictures.config import DataConfig, read_to_score
from triptych.domains.pictures.data import ImageDataset, labels_of, leaks
from triptych.domains.pictures.options import GRID
from triptych.domains.pictures.render import Blocks
from triptych.errors import UserError
from triptych.files.progress import display
from triptych.files.results import OutputFolder
from triptych.files.splits import ALL
from triptych.training.engine.devices import device_of, scoring
from triptych.training.engine.evaluate import Evaluation, sum_scores
from triptych.types import Progress

DEFAULT_PASSES = 5
"""Passes of resampling where given pixels come after filled ones."""
Pixel = tuple[int, int]
"""Row and column, from 0."""


class ImageModel(ImageScores, TrainedModel):
    """A trained image model; vocabulary: of its data, as in `ImageDataset.vocabulary`."""

    settings_class = ImageSettings
    settings: ImageSettings
    full_model: ImageTransformer
    model: Any  # ImageTransformer
    core = "core"

    def predicts(self) -> dict[str, Any]:
        model = self.full_model
        conditions = {"class": model.n_classes > 0, "small image": model.factor}
        order = {"order of generation": model.order.coordinates.tolist()}
        return super().predicts() | conditions | order

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
        return self._sample(count, options, labels_of(count, label, self.full_model.n_classes))

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
        labels: class of each image, for class-conditional models. passes: as in
        `ImageSampleOptions`. options: see `SampleKeywords`. Raises UserError for settings with
        which a model cannot be resampled.
        """
        self.needs_no_small_image("completion")
        unknown = torch.from_numpy(filled)
        if passes is None:
            passes = 0 if self.full_model.given_first(unknown) else DEFAULT_PASSES
        temperature = options.get("temperature", 1.0)
        filters = options.get("top_k") or options.get("top_p")
        fixed = temperature != 1 and not self._categorical
        if passes and (not temperature or filters or fixed):
            raise UserError(
                "passes need a temperature above 0, without top_k and top_p, and of 1 for a model "
                "of logistics: set them so, or passes to 0"
            )
        return self._of_each(
            "pixels", images, count, labels, options, filled=unknown, passes=passes
        )

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
        self.upscaling_model()
        return self._of_each("small", small, count, labels, options)

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

    def _of_each(
        self,
        name: str,
        images: NDArray[np.uint8],
        count: int,
        labels: Sequence[int] | None,
        options: SampleKeywords,
        **given: Any,
    ) -> NDArray[np.uint8]:
        """Return `count` samples for each of the given images: [N, count, H, W, C].

        name: of the images as an argument of `ImageTransformer.sample`. Raises UserError for labels
        that are missing or not needed.
        """
        if (labels is None) != (self.full_model.n_classes == 0):
            raise UserError("labels are needed exactly for a class-conditional model")
        classes = None if labels is None else torch.tensor(labels).repeat_interleave(count)
        given[name] = torch.from_numpy(images).repeat_interleave(count, 0)
        samples = self._sample(len(given[name]), options, classes, **given)
        return samples.reshape(-1, count, *self.full_model.shape)

    @property
    def _categorical(self) -> bool:
        return isinstance(self.full_model.core.head, CategoricalHead)

    def _sample(
        self, count: int, options: SampleKeywords, labels: Tensor | None, **given: Any
    ) -> NDArray[np.uint8]:
        """Return images [count, H, W, C]; given: further arguments of `ImageTransformer.sample`."""
        if not self._categorical and (options.get("top_k") or options.get("top_p")):
            raise UserError(
                "top_k and top_p need a categorical head; this model predicts a mixture of "
                "logistics: use temperature"
            )
        request = SampleRequest.of(count, **options)
        pixels: Tensor = self.model.sample(request, labels=labels, **given)
        return pixels.cpu().numpy()

    def decoder(self) -> Decoder | None:
        model = self.full_model
        if model.factor is not None:
            return None
        order = {"order": model.order.coordinates.tolist()}
        return Decoder(model.core, model.order.length, model.conditioner.classes, order)

    def score_split(self, request: ScoreRequest, progress: Progress | None = None) -> Evaluation:
        """Return bits per dim over all sub-pixels of a split, and the bits per dim of baselines.

        batch_size: int8 measures the range of its inputs per batch. Raises UserError also for data
        that do not fit the model.
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
        train = _training_images(settings)
        trained_on = _training_images(self.data_settings) if request.data else train
        leak = leaks(trained_on, {request.split: images}) if trained_on else []
        details = {
            "dtype": self.dtype,
            "levels": model.levels,
            **({"given": " and the ".join(given)} if given else {}),
            "sub_pixels": int(sums["dims"]),
            "uniform_bits_per_dim": math.log2(model.levels),
            "histogram_bits_per_dim": None
            if train is None or request.split == ALL
            else histogram_bits_per_dim(train.pixels, images.pixels, images.levels),
            **(leak[0].details() if leak else {}),
        }
        return Evaluation(
            self.domain, request.split, self.metrics(sums), int(sums["images"]), details
        )

    def check_evaluation(self, options: ImageEvaluateOptions) -> None:
        shape = self.full_model.shape[:2]
        if options.samples:
            self.upscaling_model()
        if options.mask is not None:
            self.needs_no_small_image("mask")
            if not self.full_model.given_first(filled_pixels(options.mask, *shape)):
                raise UserError(
                    "the likelihood of the filled pixels needs a mask whose given pixels all come "
                    "before them in the model's generation order, such as --mask bottom"
                )

    def further_details(self, options: ImageEvaluateOptions) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if options.mask is None and not options.samples:
            return details
        _, images = self._read_split(options)
        if options.mask is not None:
            filled = filled_pixels(options.mask, *self.full_model.shape[:2])
            progress = display("batches scored in two parts")
            details |= completion_scores(self, images, filled, progress=progress)
        if options.samples:
            details |= upscaling_scores(
                self, images.first(options.samples), seed=options.seed,
                progress=display("sampled positions"),
            )  # fmt: skip
        return details

    def _read_split(self, request: ScoreRequest) -> tuple[DataConfig, ImageDataset]:
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
        self.needs_one_model("attention weights")
        model = self.full_model
        labels = torch.tensor([label or 0]) if model.n_classes else None
        layer = layer or self.settings.model.transformer.n_layers
        block, number = model.core.decoder.block_of(layer)
        with scoring(model), capture_attention(block) as captured:
            model.nll(torch.from_numpy(image).to(device_of(model)).unsqueeze(0), labels)
        # Query t predicts value t of the order; key 0 holds the start vector.
        query = torch.stack([model.order.positions[row, col, 0] for row, col in pixels])  # [N]
        weights = captured.self_attention[number][0, :, query]  # [heads, N, L]
        images = by_pixel(model, weights.flatten(0, 1))  # [heads N, H, W]
        images = images.view(-1, len(pixels), *images.shape[1:])  # [heads, N, H, W]
        maps: NDArray[np.float64] = (images.mean(0) if head is None else images[head - 1]).numpy()
        return maps

    def write_samples(self, options: ImageSampleOptions, out: OutputFolder) -> str:
        levels, n_classes = self.full_model.levels, self.full_model.n_classes
        if options.complete is not None or options.upscale is not None:
            images = write_given(self, options, out)
        else:
            progress = display("sampled positions")
            images = self.sample(**options.arguments_of(self.sample), progress=progress)
            render.write_grid(out.path / GRID, images, levels, n_classes)
        return render.write_samples(out, images, levels)

    def write_attention(self, options: ImageAttentionOptions, out: OutputFolder) -> str:
        model, sizes, head = self.full_model, self.settings.model.transformer, options.head
        check_layer_and_head(options.layer, head, n_layers=sizes.n_layers, n_heads=sizes.n_heads)
        layer = options.layer or sizes.n_layers
        pixels = options.pixels(*model.shape[:2])
        label = options.label if model.n_classes else None
        progress = display("sampled positions")
        image = self.sample(1, seed=options.seed, label=label, progress=progress)[0]  # [H, W, C]
        maps = self.attention(image, pixels, label=label, layer=layer, head=head)
        title = (
            f"layer {layer}, {'mean of all heads' if head is None else f'head {head}'}: weights "
            "(red) of the prediction of a pixel (blue),\nquery block (solid) and memory block "
            "(dashed)"
        )
        blocks = attention_blocks(model, pixels)
        drawn = render.PixelAttention(image, model.levels, pixels, maps, blocks, title)
        return drawn.write(out, layer=layer, head=head, label=label)


restore = ImageModel.restore


def _training_images(settings: DataConfig) -> ImageDataset | None:
    """Return the training images; None where they are missing."""
    with suppress(UserError):
        return settings.read("train")
    return None


def attention_blocks(model: ImageTransformer, pixels: Sequence[Pixel]) -> list[Blocks]:
    """Return the query block and the memory block of each predicted pixel: bool [H, W] each.

    The query block has the pixels that share the predicted one's window of keys; without windows it
    is the pixel alone. The memory block (Parmar et al. 2018, section 3.3) has the pixels whose
    values some query of the block sees by the mask pattern, the block's own too.
    """
    pattern = model.core.decoder.blocks[0].attention.mask_pattern
    positions = torch.arange(model.order.length, device=device_of(model))  # [L]
    blocks = []
    for row, column in pixels:
        queries = model.order.positions[row, column]  # [C]
        if pattern.windows is not None:
            number = pattern.windows.block_of(positions)  # [L]
            queries = positions[number == number[queries[0]]]  # [Q]
        seen = pattern.visible(queries.unsqueeze(1), positions).any(0)  # [L]
        of_queries = torch.zeros_like(seen).index_fill_(0, queries, True)  # [L]
        query_block = model.order.to_images(of_queries.unsqueeze(0))[0].any(-1)  # [H, W]
        memory_block = by_pixel(model, seen.unsqueeze(0))[0] > 0  # [H, W]
        blocks.append((query_block.cpu().numpy(), memory_block.numpy()))
    return blocks


def by_pixel(model: ImageTransformer, of_keys: Tensor) -> Tensor:
    """Return sums over the keys that hold a pixel's values: [N, L] -> float64 [N, H, W]."""
    by_value = F.pad(of_keys[:, 1:], (0, 1))  # [N, L], key t holds the value at t - 1
    return model.order.to_images(by_value).cpu().double().sum(-1)
