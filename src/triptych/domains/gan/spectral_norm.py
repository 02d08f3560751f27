"""Spectral normalisation (Miyato et al. 2018, arXiv 1802.05957) with the exact norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


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
