"""A tiny model whose sequences can all be enumerated, and a test of samples against it."""

from __future__ import annotations

import math
from itertools import product

import torch
from decoders import D, decoder_only
from torch import Tensor

from triptych.core.attention.full import Full
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.embeddings import TokenEmbedding
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import AxialEmbedding, raster
from triptych.decoding.sampling import Given

N_DRAWS = 20_000
SHAPE = (2, 3)
LEVELS = 3


def categorical(scale: float = 2.0, attention: AttentionConfig | None = None) -> DecoderOnly:
    """A model of 2 x 3 pixels of 3 levels; all 729 pictures can be enumerated."""
    torch.manual_seed(3)
    embedding, positions = TokenEmbedding(LEVELS, D), AxialEmbedding(raster(SHAPE), D)
    model = decoder_only(
        LEVELS, SHAPE, embedding=embedding, positions=positions, attention=attention or Full()
    )
    with torch.no_grad():  # far from uniform
        model.head.logits.weight.mul_(scale)
    return model.eval()


def enumerated(model: DecoderOnly, fixed: dict[int, int], temperature: float = 1.0) -> Tensor:
    """p(all values | fixed ones) of every picture, in the order of `product`: [3 ** 6]."""
    every = torch.tensor(list(product(range(LEVELS), repeat=6)))
    with torch.no_grad():
        log_p = (model(every).double() / temperature).log_softmax(-1)
    p = log_p.gather(2, every.unsqueeze(2)).sum((1, 2)).exp()
    for position, value in fixed.items():
        p = p * (every[:, position] == value)
    return p / p.sum()


def counted(values: Tensor) -> Tensor:
    index = (values * LEVELS ** torch.arange(5, -1, -1)).sum(1)
    return torch.bincount(index, minlength=LEVELS**6) / len(values)


def given(fixed: dict[int, int], start: Tensor | None = None, count: int = N_DRAWS) -> Given:
    values = torch.zeros(count, 6, dtype=torch.int64) if start is None else start.clone()
    known = torch.zeros(len(values), 6, dtype=torch.bool)
    for position, value in fixed.items():
        values[:, position], known[:, position] = value, True
    return Given(values, known)


def assert_distributed_as(found: Tensor, p: Tensor) -> None:
    """Pearson's chi-square over the pictures that are expected at least five times."""
    expected = p * len(found)
    often = expected >= 5
    assert counted(found)[p == 0].sum() == 0
    observed = counted(found) * len(found)
    chi2 = ((observed - expected)[often] ** 2 / expected[often]).sum()
    cells = int(often.sum()) - 1
    assert cells > 2  # several pictures are probable
    assert abs(float(chi2) - cells) < 5 * math.sqrt(2 * cells)
