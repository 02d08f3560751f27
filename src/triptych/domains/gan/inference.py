"""A trained GAN in use: sampling, evaluation, attention of a generated image."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych.decoding.sampling import check_count
from triptych.domains.base import TrainedModel
from triptych.domains.gan.domain import GanAttentionOptions, GanSampleOptions
from triptych.domains.gan.metrics import FrechetScore
from triptych.domains.gan.model import GanSettings, SelfAttentionGan
from triptych.domains.options import ScoreRequest
from triptych.domains.pictures import render
from triptych.domains.pictures.config import read_to_score
from triptych.domains.pictures.data import labels_of, leaks
from triptych.domains.pictures.options import GRID
from triptych.errors import UserError
from triptych.files.results import OutputFolder
from triptych.training.engine.devices import scoring
from triptych.training.engine.evaluate import Evaluation
from triptych.types import Dtype, Progress


class GanModel(TrainedModel):
    """A trained GAN; vocabulary: of its data, as in `ImageDataset.vocabulary`."""

    domain = "gan"
    settings_class = GanSettings
    settings: GanSettings
    full_model: SelfAttentionGan

    def __init__(self, settings: Any, model: SelfAttentionGan, vocabulary: Any = None) -> None:
        super().__init__(settings, model, vocabulary)
        model.update_statistics()

    def with_dtype(self, dtype: Dtype) -> Self:
        if dtype != "fp32":
            raise UserError(f"dtype is {dtype}, but a GAN runs in fp32 only")
        return self

    def sample(
        self, count: int, *, seed: int = 0, labels: Tensor | None = None
    ) -> NDArray[np.uint8]:
        """Return generated images uint8 [count, H, W, C] with values 0 .. levels-1.

        labels: int64 [count], of a class-conditional model. The same seed gives the same images.
        """
        check_count(count)
        generator = torch.Generator().manual_seed(seed)
        with scoring(self.full_model):
            samples = self.full_model.sample(count, labels=labels, generator=generator)
        pixels: NDArray[np.uint8] = samples.cpu().numpy()
        return pixels

    def score_split(self, request: ScoreRequest, progress: Progress | None = None) -> Evaluation:
        """Return the Fréchet distance of samples to the training images, see `FrechetScore`.

        There are as many samples as images in the split, of the same classes. Since a distance on
        features of our own means little alone, the metrics also have those of the split's own
        images and of uniform noise. Raises UserError for missing data and for data that do not fit
        the model.
        """
        train = self.data_settings.read("train")
        _, images = read_to_score(self.data_settings, request, self.vocabulary, classes=True)
        score, labels = FrechetScore(train), images.labels
        if len(images) < 2 or labels is None:
            raise UserError("the Fréchet distance needs at least two images with classes")
        classes, seed = self.full_model.classes_of(labels), self.header["seed"]
        samples = torch.from_numpy(self.sample(len(images), seed=seed, labels=classes))
        generator = torch.Generator().manual_seed(0)
        noise = torch.randint(train.levels, images.pixels.shape, generator=generator)
        details: dict[str, Any] = {
            "dtype": self.dtype,
            "fid_features": "a classifier trained on the training images; not Inception",
            "classifier_accuracy": score.accuracy(images.pixels, labels),
        }
        if self.full_model.n_classes:
            details["samples_in_class"] = score.accuracy(samples, labels)
        for leak in leaks(train, {request.split: images}):
            details |= leak.details()
        metrics = {
            "fid": score.distance(samples),
            "real_images_fid": score.distance(images.pixels),
            "noise_fid": score.distance(noise),
        }
        if progress is not None:
            progress(1, 1)
        return Evaluation(self.domain, request.split, metrics, len(images), details)

    def write_samples(self, options: GanSampleOptions, out: OutputFolder) -> str:
        model = self.full_model
        labels = labels_of(options.count, options.label, model.n_classes)
        images = self.sample(options.count, seed=options.seed, labels=labels)
        render.write_grid(out.path / GRID, images, model.levels, model.n_classes)
        return render.write_samples(out, images, model.levels)

    def attention(
        self, pixels: Sequence[tuple[int, int]], *, seed: int = 0, label: int = 0
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Generate an image and return it with the attention of the generator at its pixels.

        Returns the image [H, W, C] and weights [len(pixels), H, W], which add up to 1 for each
        pixel. A position of a smaller feature map covers a square of pixels, which share its weight
        evenly. Raises UserError for a model without attention.
        """
        model = self.full_model
        attention = model.generator.attention
        if attention is None:
            raise UserError("this GAN has no self-attention (model.attention_side is null)")
        captured: list[Tensor] = []
        labels = labels_of(1, label if model.n_classes else None, model.n_classes)
        with attention.register_forward_pre_hook(
            lambda layer, arguments: captured.append(layer.weights(*arguments))
        ):
            image = self.sample(1, seed=seed, labels=labels)[0]  # [H, W, C]
        weights = captured[0][0].double().cpu()  # [N, N]
        height, width, _ = model.shape
        side = attention.height
        factor = height // side
        rows = torch.tensor([r // factor * (width // factor) + c // factor for r, c in pixels])
        maps = weights[rows].view(len(pixels), side, -1)  # [P, h, w]
        full = render.repeat(maps, factor) / factor**2  # [P, H, W]
        return image, full.numpy()

    def write_attention(self, options: GanAttentionOptions, out: OutputFolder) -> str:
        pixels = options.pixels(*self.full_model.shape[:2])
        image, maps = self.attention(pixels, seed=options.seed, label=options.label)
        assert self.full_model.generator.attention is not None
        gate = self.full_model.generator.attention.gate.item()
        title = f"weights (red) of a pixel (blue)\ngate {gate:.3f}"
        label = options.label if self.full_model.n_classes else None
        drawn = render.PixelAttention(image, self.full_model.levels, pixels, maps, title=title)
        return drawn.write(out, gate=gate, label=label)


restore = GanModel.restore
