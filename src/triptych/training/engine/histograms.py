"""What an update does to the weights: histograms and update ratios, for the loggers of a run."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

Histogram = tuple[np.ndarray, np.ndarray]
"""Counts [N] and edges of the bins [N + 1]."""
Histograms = Mapping[str, Histogram]
BINS = 64


class UpdateRecord:
    """Weights and gradients of a model around one update; all devices wait for it.

    It draws no random number and changes nothing, so that a run is the same with and without it.
    """

    def __init__(self) -> None:
        self._histograms: dict[str, Histogram] = {}
        self._before: dict[str, Tensor] = {}

    @property
    def has_begun(self) -> bool:
        """Whether gradients were taken, and `end` not called since."""
        return bool(self._histograms)

    @torch.no_grad()
    def begin(self, model: nn.Module) -> None:
        """Take the gradients before they are clipped, and keep a copy of the matrices.

        A model of several optimisers is taken before each of them; later gradients are added.
        """
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self._histograms[f"gradients/{name}"] = histogram(parameter.grad)
                if parameter.ndim >= 2:
                    self._before[name] = parameter.clone()

    @torch.no_grad()
    def end(self, model: nn.Module) -> tuple[dict[str, float], dict[str, Histogram]]:
        """Return ratios and histograms after the update, by names as wandb.watch gives them.

        update_ratio/NAME is the L2 norm of the update of a matrix over that of the matrix before
        it; a matrix of zeros has none.
        """
        histograms, before = self._histograms, self._before
        self._histograms, self._before = {}, {}
        ratios: dict[str, float] = {}
        for name, parameter in model.named_parameters():
            if f"gradients/{name}" in histograms:
                histograms[f"parameters/{name}"] = histogram(parameter)
            if (old := before.get(name)) is not None:
                change = (parameter.float() - old.float()).norm()
                if math.isfinite(ratio := float(change / old.float().norm())):
                    ratios[f"update_ratio/{name}"] = ratio
        return ratios, histograms


def histogram(values: Tensor) -> Histogram:
    """Return `BINS` equal bins from the smallest to the largest of the finite values.

    Equal values are in the middle of a width of 1; no values have bins from 0 to 1.
    """
    finite = values[values.isfinite()].float().cpu().numpy()  # [n]
    return np.histogram(finite, BINS)
