"""Generator and discriminator with self-attention at one feature map.

After Zhang et al. 2018: self-attention with a gate (section 3), spectral norm in both networks
(section 4.1), class-conditional batch norm in the generator and a projection of the class in the
discriminator (section 5). Smaller than there, with one number of channels throughout.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from triptych.decoding.ranks import gathered, shared_out
from triptych.domains.pictures.config import PictureSettings
from triptych.domains.pictures.data import labels_of
from triptych.types import Checked, PositiveInt

REDUCTION = 8
"""Channels of a feature map per channel of queries, keys and values (Zhang et al. 2018)."""
SAMPLE_BATCH = 256
"""Images generated at once."""
STATISTICS_BATCHES = 2
"""Batches of this size whose mean and variance the batch norms use for samples."""


@dataclass(frozen=True)
class ModelConfig(Checked):
    """Sizes of a generator and a discriminator with self-attention at one feature map."""

    latent: PositiveInt = 64
    """Numbers of the normal noise from which an image is generated."""
    channels: PositiveInt = 64
    """Channels of every feature map."""
    n_blocks: PositiveInt = 1
    """Blocks of the generator that double height and width, and of the discriminator that halve
    them; the image's sides must be multiples of 2^n_blocks."""
    attention_side: PositiveInt | None = 8
    """Height in positions of the feature map with self-attention, in both networks; null for
    none."""
    class_conditional: bool = True
    """Condition both networks on the image's class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention_side is not None and self.channels < REDUCTION:
            raise ValueError(
                f"channels is {self.channels}; self-attention, whose width is an eighth of it, "
                f"needs at least {REDUCTION} (attention_side null: none)"
            )


class FeatureMapAttention(nn.Module):
    """Self-attention over the positions of a feature map (Zhang et al. 2018, section 3).

    y = x + gate * v(attention) with a scalar gate that starts at 0 (equation 3). Keys f, queries g,
    values h and the output v are 1x1 convolutions without bias, each with a spectral norm of its
    own (`add_spectral_norm`). f, g and h have an eighth of the channels, as in the text of the
    paper; in its published code h has half of them, and f and h are pooled to a quarter of the
    positions. The logits f^T g are not divided by the square root of the width: under spectral norm
    they would be so small that the weights stay close to uniform.
    """

    def __init__(self, channels: int, height: int) -> None:
        super().__init__()
        width = channels // REDUCTION
        self.f, self.g, self.h = (nn.Conv2d(channels, width, 1, bias=False) for _ in range(3))
        self.v = nn.Conv2d(width, channels, 1, bias=False)
        self.gate = nn.Parameter(torch.zeros(1))
        self.height = height

    def forward(self, x: Tensor) -> Tensor:
        """Feature map [B, C, H, W] -> [B, C, H, W]."""
        values = self.h(x).flatten(2)  # [B, C / 8, HW]
        attended = values @ self.weights(x).mT  # [B, C / 8, HW]
        added: Tensor = self.gate * self.v(attended.unflatten(2, x.shape[2:]))  # [B, C, H, W]
        return x + added

    def weights(self, x: Tensor) -> Tensor:
        """Weights of the positions that each position attends to: [B, HW, HW], queries first.

        x: feature map [B, C, H, W]. Rows add up to 1.
        """
        queries, keys = self.g(x).flatten(2), self.f(x).flatten(2)  # [B, C / 8, HW] each
        logits: Tensor = queries.mT @ keys  # [B, HW, HW]
        return logits.softmax(-1)


class ClassNorm(nn.Module):
    """Batch norm whose scale and shift depend on the class (Dumoulin et al. 2017).

    n_classes: 0 for the same scale and shift for all images. In evaluation the mean and variance
    are those of all batches since `SelfAttentionGan.update_statistics`, with equal weights.
    """

    def __init__(self, channels: int, n_classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False, momentum=None)
        self.affine = nn.Embedding(max(1, n_classes), 2 * channels)
        with torch.no_grad():
            self.affine.weight[:, :channels] = 1
            self.affine.weight[:, channels:] = 0

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Feature map [B, C, H, W], labels int64 [B] or None -> [B, C, H, W]."""
        if labels is None:
            labels = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        scale, shift = self.affine(labels)[..., None, None].chunk(2, dim=1)  # [B, C, 1, 1] each
        y: Tensor = self.norm(x) * scale + shift  # [B, C, H, W]
        return y


class GeneratorBlock(nn.Module):
    """Residual block that doubles height and width."""

    def __init__(self, channels: int, n_classes: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (ClassNorm(channels, n_classes) for _ in range(2))
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Feature map [B, C, H, W] -> [B, C, 2 H, 2 W]."""
        y: Tensor = F.interpolate(self.norm1(x, labels).relu(), scale_factor=2)  # [B, C, 2 H, 2 W]
        y = self.conv2(self.norm2(self.conv1(y), labels).relu())
        y = self.shortcut(F.interpolate(x, scale_factor=2)) + y
        return y


class DiscriminatorBlock(nn.Module):
    """Residual block without norms; halve: average squares of 2x2 positions."""

    def __init__(self, channels: int, *, halve: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, channels, 1)
        self.halve = halve

    def forward(self, x: Tensor) -> Tensor:
        """Feature map [B, C, H, W] -> the same shape, or [B, C, H / 2, W / 2]."""
        y: Tensor = self.conv2(self.conv1(x.relu()).relu()) + self.shortcut(x)  # [B, C, H, W]
        return F.avg_pool2d(y, 2) if self.halve else y


class Generator(nn.Module):
    """Image with values from -1 to 1, from normal noise and a class.

    Arguments: see `SelfAttentionGan`.
    """

    def __init__(self, config: ModelConfig, shape: tuple[int, int, int], *, n_classes: int) -> None:
        super().__init__()
        height, width, depth = shape
        channels, n_blocks = config.channels, config.n_blocks
        self.start = (channels, height >> n_blocks, width >> n_blocks)
        self.first = nn.Linear(config.latent, channels * self.start[1] * self.start[2])
        self.blocks = nn.ModuleList(GeneratorBlock(channels, n_classes) for _ in range(n_blocks))
        self.attention = _attention_of(config)
        self.norm = nn.BatchNorm2d(channels, momentum=None)
        self.last = nn.Conv2d(channels, depth, 3, padding=1)
        add_spectral_norm(self, without=(ClassNorm,))  # its embeddings are gains, no linear maps

    def forward(self, noise: Tensor, labels: Tensor | None = None) -> Tensor:
        """Noise [B, latent], labels int64 [B] or None -> images [B, C, H, W]."""
        x = attend(self.attention, self.first(noise).view(-1, *self.start))  # [B, D, h, w]
        for block in self.blocks:
            x = attend(self.attention, block(x, labels))
        images: Tensor = self.last(self.norm(x).relu()).tanh()  # [B, C, H, W]
        return images


class Discriminator(nn.Module):
    """Logit of an image, above 0 for real.

    The class adds the product of its embedding and the features (projection discriminator, Miyato &
    Koyama 2018).
    """

    def __init__(self, config: ModelConfig, shape: tuple[int, int, int], *, n_classes: int) -> None:
        super().__init__()
        channels = config.channels
        self.first = nn.Conv2d(shape[2], channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            DiscriminatorBlock(channels, halve=True) for _ in range(config.n_blocks)
        )
        self.attention = _attention_of(config)
        self.last = DiscriminatorBlock(channels, halve=False)
        self.logit = nn.Linear(channels, 1)
        self.classes = nn.Embedding(n_classes, channels) if n_classes else None
        add_spectral_norm(self)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """Images [B, C, H, W], labels int64 [B] or None -> logits [B]."""
        x = attend(self.attention, self.first(images))  # [B, D, H, W]
        for block in self.blocks:
            x = attend(self.attention, block(x))  # [B, D, h, w]
        # A sum over positions, as in the papers' networks: under spectral norm a mean gives logits
        # too small for the hinge.
        features = self.last(x).relu().sum((2, 3))  # [B, D]
        logits: Tensor = self.logit(features).squeeze(1)  # [B]
        if self.classes is not None:
            logits = logits + (self.classes(labels) * features).sum(1)
        return logits


class SelfAttentionGan(nn.Module):
    """Generator and discriminator for images [H, W, C] of integers.

    shape: height, width, channels. levels: number of values of a sub-pixel. n_classes: 0 for
    networks without classes. Raises ValueError for sides that are no multiples of 2^n_blocks and
    for an attention side that no feature map has.
    """

    def __init__(
        self, config: ModelConfig, shape: tuple[int, int, int], *, levels: int, n_classes: int
    ) -> None:
        super().__init__()
        n_blocks, attention_side = config.n_blocks, config.attention_side
        if shape[0] % 2**n_blocks or shape[1] % 2**n_blocks:
            raise ValueError(
                f"model.n_blocks is {n_blocks}: sides {shape[0]} and {shape[1]} are no multiples "
                f"of {2**n_blocks}"
            )
        sides = [shape[0] >> number for number in range(n_blocks + 1)]
        if attention_side is not None and attention_side not in sides:
            raise ValueError(
                f"model.attention_side is {attention_side}; the feature maps have the heights "
                f"{', '.join(map(str, sides))}"
            )
        self.shape, self.levels, self.n_classes = shape, levels, n_classes
        self.latent = config.latent
        self.generator = Generator(config, shape, n_classes=n_classes)
        self.discriminator = Discriminator(config, shape, n_classes=n_classes)

    def noise(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return normal noise [count, latent] on the model's device, drawn on the CPU."""
        noise = torch.randn(count, self.latent, generator=generator)
        return noise.to(next(self.parameters()).device)

    def classes_of(self, labels: Tensor | None) -> Tensor | None:
        """Return the labels for a class-conditional model, else None."""
        return labels if self.n_classes else None

    def to_reals(self, pixels: Tensor) -> Tensor:
        """Return integers [B, H, W, C] as values from -1 to 1: float32 [B, C, H, W]."""
        return pixels.permute(0, 3, 1, 2).float() * (2 / (self.levels - 1)) - 1

    def to_levels(self, images: Tensor) -> Tensor:
        """Return values from -1 to 1 [B, C, H, W] as the nearest integers: uint8 [B, H, W, C]."""
        levels = ((images + 1) * ((self.levels - 1) / 2)).round()
        return levels.to(torch.uint8).permute(0, 2, 3, 1)

    @torch.no_grad()
    def update_statistics(self) -> None:
        """Set the batch norms' mean and variance to those of images from the present weights.

        The running statistics of training belong to the training weights, which are not those of
        the moving average. The noise is fixed, and the classes follow in turn. Brock et al. 2019
        (arXiv 1809.11096) call these standing statistics.
        """
        for module in self.generator.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.reset_running_stats()
        was_training = self.generator.training
        self.generator.train()
        generator = torch.Generator().manual_seed(0)
        labels = labels_of(SAMPLE_BATCH, None, self.n_classes)
        for _ in range(STATISTICS_BATCHES):
            noise = self.noise(SAMPLE_BATCH, generator)  # [B, latent]
            self.generator(noise, None if labels is None else labels.to(noise.device))
        self.generator.train(was_training)

    @torch.no_grad()
    def sample(self, count: int, *, labels: Tensor | None, generator: torch.Generator) -> Tensor:
        """Return generated images uint8 [count, H, W, C]; labels: int64 [count].

        generator: on the CPU. Call `update_statistics` after a change of the weights.
        """
        noise = self.noise(count, generator).split(SAMPLE_BATCH)  # [256, latent] each
        device = noise[0].device
        classes = [None] * len(noise) if labels is None else labels.to(device).split(SAMPLE_BATCH)
        parts = shared_out(dict(enumerate(zip(noise, classes, strict=True))))
        mine = {n: self.to_levels(self.generator(*part)).cpu() for n, part in parts.items()}
        every = {n: part for share in gathered(mine) for n, part in share.items()}
        return torch.cat([every[n] for n in range(len(noise))])


@dataclass(frozen=True)
class GanSettings(PictureSettings):
    """What use of a GAN needs besides its weights and vocabulary."""

    model: ModelConfig
    network = SelfAttentionGan


def attend(attention: FeatureMapAttention | None, x: Tensor) -> Tensor:
    """Apply the attention to a feature map [B, C, H, W] of its height; return others unchanged."""
    if attention is None or x.shape[2] != attention.height:
        return x
    attended: Tensor = attention(x)
    return attended


def _attention_of(config: ModelConfig) -> FeatureMapAttention | None:
    if config.attention_side is None:
        return None
    return FeatureMapAttention(config.channels, config.attention_side)


def discriminator_loss(real: Tensor, generated: Tensor) -> Tensor:
    """Return mean max(0, 1 - real) + mean max(0, 1 + generated), of logits [B]."""
    return (1 - real).relu().mean() + (1 + generated).relu().mean()


def generator_loss(generated: Tensor) -> Tensor:
    """Return the mean of minus the logits [B] of generated images."""
    return -generated.mean()


class SpectralNorm(nn.Module):
    """Parametrisation that divides a weight by the largest singular value of its matrix.

    As in the paper, the matrix of a convolution has a row per output channel and a column per
    input channel and kernel position. Its norm is not that of the convolution as an operator.

    `torch.nn.utils.parametrizations.spectral_norm` estimates the norm by power iteration (section
    2.2) and keeps the estimate's vectors as state, which belongs to the training weights. This one
    has no state, so averaged weights are normalised as well. docs/results.md has the errors.
    """

    def forward(self, weight: Tensor) -> Tensor:
        """Weight [O, ...] -> the same shape, with largest singular value 1."""
        with torch.autocast(weight.device.type, enabled=False):
            matrix = weight.flatten(1)  # [O, I]
            if matrix.shape[0] > matrix.shape[1]:
                matrix = matrix.T  # [I, O]
            with torch.no_grad():
                # The eigenvalues of M M^T are the squared singular values, in ascending order.
                singular_vector = torch.linalg.eigh(matrix @ matrix.T).eigenvectors[:, -1]
            # With the singular vector held fixed this has the gradient u v^T (section 2.3).
            norm: Tensor = (matrix.T @ singular_vector).norm()
        return weight / norm


def add_spectral_norm(network: nn.Module, *, without: tuple[type[nn.Module], ...] = ()) -> None:
    """Normalise the weight of each convolution, linear map and embedding, in place.

    without: modules of these types, with their parts, keep their weights.
    """
    kept = {part for m in network.modules() if isinstance(m, without) for part in m.modules()}
    for module in list(network.modules()):
        if isinstance(module, nn.Conv2d | nn.Linear | nn.Embedding) and module not in kept:
            parametrize.register_parametrization(module, "weight", SpectralNorm())
