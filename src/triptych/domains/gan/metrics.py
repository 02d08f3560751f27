"""Fréchet distance between images, on features of a small classifier trained on the same data.

Published figures (FID, Heusel et al. 2017) use features of an Inception network trained on
ImageNet; figures from here cannot be compared with them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.domains.pictures.data import ImageDataset
from triptych.errors import UserError

N_FEATURES = 32
STEPS = 500
"""Updates of the classifier, of 64 images each."""
MOST_IMAGES = 10_000
"""Training images, from the first on, whose features make the reference."""


class Gaussian(NamedTuple):
    """Mean and covariance of features."""

    mean: Tensor  # float64 [F]
    covariance: Tensor  # float64 [F, F]


def frechet_distance(a: Gaussian, b: Gaussian) -> float:
    """Return |m_a - m_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^(1/2)) (Heusel et al. 2017, equation 6).

    The eigenvalues of S_a S_b are those of the symmetric S_a^(1/2) S_b S_a^(1/2).
    """
    values, vectors = torch.linalg.eigh(a.covariance)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T  # [F, F]
    product = torch.linalg.eigvalsh(root @ b.covariance @ root).clamp(min=0)
    trace = a.covariance.trace() + b.covariance.trace() - 2 * product.sqrt().sum()
    return float((a.mean - b.mean).square().sum() + trace)


class Classifier(nn.Module):
    """A small convolutional classifier; its features are the layer before the logits."""

    def __init__(self, channels: int, n_classes: int, levels: int) -> None:
        super().__init__()
        self.levels = levels
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * 4, N_FEATURES)
        self.logits = nn.Linear(N_FEATURES, n_classes)

    def features(self, pixels: Tensor) -> Tensor:
        """Integers [B, H, W, C] -> features [B, F]."""
        x = pixels.permute(0, 3, 1, 2).float() / (self.levels - 1)  # [B, C, H, W]
        x = F.max_pool2d(self.conv1(x).relu(), 2)  # [B, 32, H / 2, W / 2]
        x = F.adaptive_avg_pool2d(self.conv2(x).relu(), 2)  # [B, 64, 2, 2]
        features: Tensor = self.hidden(x.flatten(1)).relu()
        return features

    def forward(self, pixels: Tensor) -> Tensor:
        """Integers [B, H, W, C] -> logits [B, N]."""
        logits: Tensor = self.logits(self.features(pixels))
        return logits


class FrechetScore:
    """Fréchet distances to the training images.

    The classifier is trained at once, on the CPU, with the same seed each time. Raises UserError
    for images without classes.
    """

    def __init__(self, train: ImageDataset) -> None:
        if train.labels is None:
            raise UserError(
                "a GAN needs images with classes (sub-folders of an image folder): its score uses "
                "the features of a classifier"
            )
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(0)
            self.classifier = Classifier(
                train.pixels.shape[3], len(train.class_names), train.levels
            )
            optimizer = torch.optim.Adam(self.classifier.parameters(), lr=2e-3)
            for _ in range(STEPS):
                chosen = torch.randint(len(train), (64,))
                logits = self.classifier(train.pixels[chosen])
                optimizer.zero_grad()
                F.cross_entropy(logits, train.labels[chosen]).backward()
                optimizer.step()
        self.classifier.requires_grad_(False)
        self.reference = self.gaussian(train.pixels[:MOST_IMAGES])

    def gaussian(self, pixels: Tensor) -> Gaussian:
        """Return mean and covariance of the features of at least two images [N, H, W, C]."""
        parts = [self.classifier.features(part) for part in pixels.cpu().split(1024)]
        features = torch.cat(parts).double()  # [N, F]
        return Gaussian(features.mean(0), features.T.cov())

    def distance(self, pixels: Tensor) -> float:
        """Return the distance of images [N, H, W, C] to the training images."""
        return frechet_distance(self.reference, self.gaussian(pixels))

    def accuracy(self, pixels: Tensor, labels: Tensor) -> float:
        """Return the share of images [N, H, W, C] that the classifier assigns to their labels."""
        parts = [self.classifier(part).argmax(1) for part in pixels.cpu().split(1024)]
        return float((torch.cat(parts) == labels.cpu()).double().mean())
