"""Hinge losses of a GAN, and what spectral normalisation does to the unit circle."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triptych.domains.gan.losses import discriminator_loss, generator_loss
from triptych.domains.gan.spectral_norm import SpectralNorm
from triptych.files.drawing import BLUE, GREEN, RED, new_figure, png
from triptych.tools.explain.figure import Content, ExplainOptions, Figure

WEIGHT = ((1.6, 0.9), (-0.4, 0.8))
"""Matrix W that is normalised."""
LOWEST, HIGHEST, N_POINTS = -3.0, 3.0, 121


class Losses(NamedTuple):
    """Part of a loss that one image has, at each logit: [n]."""

    logits: Tensor
    real: Tensor
    generated: Tensor
    generator: Tensor


def losses() -> Losses:
    """Return the losses of single images; the other images of a pair are beyond the margin."""
    logits = torch.linspace(LOWEST, HIGHEST, N_POINTS, dtype=torch.float64)  # [n]
    far = torch.tensor([10.0], dtype=torch.float64)  # [1]
    single = logits.split(1)
    real = torch.stack([discriminator_loss(one, -far) for one in single])  # [n]
    generated = torch.stack([discriminator_loss(far, one) for one in single])  # [n]
    return Losses(logits, real, generated, torch.stack([generator_loss(one) for one in single]))


class Circles(NamedTuple):
    """Points of the unit circle, and where two matrices map them: [2, n] each."""

    unit: Tensor
    after_weight: Tensor
    after_normalised: Tensor


def circles() -> Circles:
    """Return the unit circle, and what W and its normalised form make of it."""
    angle = torch.linspace(0, 2 * torch.pi, 200, dtype=torch.float64)  # [n]
    points = torch.stack([angle.cos(), angle.sin()])  # [2, n]
    weight = torch.tensor(WEIGHT, dtype=torch.float64)  # [2, 2]
    return Circles(points, weight @ points, SpectralNorm()(weight) @ points)


def draw(options: ExplainOptions, model: None) -> Content:
    """Return the losses on the left and the images of the circle on the right."""
    figure = new_figure(8.4, 3.6)
    left, right = figure.subplots(1, 2)
    curves = losses()
    left.plot(curves.logits, curves.real, color=BLUE, label="discriminator, real image")
    left.plot(curves.logits, curves.generated, color=RED, label="discriminator, generated image")
    left.plot(curves.logits, curves.generator, color=GREEN, linestyle="--",
              label="generator, generated image")  # fmt: skip
    left.set(xlabel="logit of the image", ylabel="loss", xlim=(LOWEST, HIGHEST))
    left.grid(color="#eeeeee")
    left.set_axisbelow(True)
    left.legend(fontsize=8, frameon=False)
    drawn = circles()
    right.plot(*drawn.unit, color="black", linewidth=1, label="vectors of length 1")
    right.plot(*drawn.after_weight, color=RED, label="after W")
    right.plot(*drawn.after_normalised, color=BLUE, label="after W / σ(W): never longer")
    right.set_aspect("equal")
    right.set_axis_off()
    right.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.02))
    return {"gan-losses.png": png(figure)}


FIGURE = Figure(files=("gan-losses.png",), draw=draw)
