"""Fréchet distance between images, on features of a small classifier trained on the same data.

Published figures (FID, Heusel et al. 2017) use features of an Inception network trained on
ImageNet; figures from here cannot be compared with them.
"""

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


class FrechetScore:
    """Fréchet distances to the training images.

    The features are the layer before the logits of a small convolutional classifier, which is
    trained at once, on the CPU, with the same seed each time. Raises UserError for images without
    classes.
    """

    def __init__(self, train: ImageDataset) -> None:
        if train.labels is None:
            raise UserError(
                "a GAN needs images with classes (sub-folders of an image folder): its score uses "
                "the features of a classifier"
            )
        self.levels = train.levels
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(0)
            self.features = nn.Sequential(
                nn.Conv2d(train.pixels.shape[3], 32, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),  # [B, 32, H / 2, W / 2]
                nn.Conv2d(32, 64, 3, padding=1),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(2),  # [B, 64, 2, 2]
                nn.Flatten(),
                nn.Linear(64 * 4, N_FEATURES),
                nn.ReLU(),
            )
            logits = nn.Linear(N_FEATURES, len(train.class_names))
            self.classifier = nn.Sequential(self.features, logits)
            optimizer = torch.optim.Adam(self.classifier.parameters(), lr=2e-3)
            for _ in range(STEPS):
                chosen = torch.randint(len(train), (64,))
                optimizer.zero_grad()
                outputs = self._apply(self.classifier, train.pixels[chosen])  # [64, N]
                F.cross_entropy(outputs, train.labels[chosen]).backward()
                optimizer.step()
        self.classifier.requires_grad_(False)
        self.reference = self.gaussian(train.pixels[:MOST_IMAGES])

    def _apply(self, network: nn.Module, pixels: Tensor) -> Tensor:
        """Return the network's outputs for integers [N, H, W, C]: [N, F]."""
        planes = pixels.cpu().permute(0, 3, 1, 2)  # [N, C, H, W]
        return torch.cat([network(part / (self.levels - 1)) for part in planes.split(1024)])

    def gaussian(self, pixels: Tensor) -> Gaussian:
        """Return mean and covariance of the features of at least two images [N, H, W, C]."""
        features = self._apply(self.features, pixels).double()  # [N, F]
        return Gaussian(features.mean(0), features.T.cov())

    def distance(self, pixels: Tensor) -> float:
        """Return the distance of images [N, H, W, C] to the training images."""
        return frechet_distance(self.reference, self.gaussian(pixels))

    def accuracy(self, pixels: Tensor, labels: Tensor) -> float:
        """Return the share of images [N, H, W, C] that the classifier assigns to their labels."""
        chosen = self._apply(self.classifier, pixels).argmax(1)  # [N]
        return float((chosen == labels.cpu()).double().mean())
