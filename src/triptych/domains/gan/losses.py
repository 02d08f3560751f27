"""Hinge losses of a GAN (Zhang et al. 2018, equation 4)."""

from torch import Tensor


def discriminator_loss(real: Tensor, generated: Tensor) -> Tensor:
    """Return mean max(0, 1 - real) + mean max(0, 1 + generated), of logits [B]."""
    return (1 - real).relu().mean() + (1 + generated).relu().mean()


def generator_loss(generated: Tensor) -> Tensor:
    """Return the mean of minus the logits [B] of generated images."""
    return -generated.mean()
