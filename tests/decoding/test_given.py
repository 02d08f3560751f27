"""Known values: forced in the order of generation, and resampling that sees those after it."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from random_head import with_random_head
from torch import Tensor

from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.embeddings import PixelEmbedding, TokenEmbedding
from triptych.core.feed_forward import GELU
from triptych.core.generation_order import raster
from triptych.core.heads import CategoricalHead, MixtureOfLogisticsHead
from triptych.core.models.base import Condition
from triptych.core.models.decoder_only import DecoderOnly
from triptych.core.positions import AxialEmbedding
from triptych.core.transformer import TransformerConfig
from triptych.decoding.generate import Draft, generate
from triptych.decoding.resample import resample
from triptych.decoding.sampling import Given, Sampling

D = 12
N_DRAWS = 20_000
SHAPE = (2, 3)
LEVELS = 3


def categorical(scale: float = 2.0) -> DecoderOnly:
    """A model of 2 x 3 pixels of 3 levels; all 729 pictures can be enumerated."""
    torch.manual_seed(3)
    config = TransformerConfig(
        n_layers=2, d_model=D, n_heads=3, feed_forward=GELU(16), dropout=0.0, attention=Full()
    )
    order = raster(SHAPE)
    model = DecoderOnly(
        TokenEmbedding(LEVELS, D), AxialEmbedding(order, D), config.decoder(SHAPE),
        CategoricalHead(D, LEVELS), d_model=D,
    )  # fmt: skip
    with_random_head(model)
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


def given(fixed: dict[int, int], start: Tensor | None = None) -> Given:
    values = torch.zeros(N_DRAWS, 6, dtype=torch.int64) if start is None else start.clone()
    known = torch.zeros(N_DRAWS, 6, dtype=torch.bool)
    for position, value in fixed.items():
        values[:, position], known[:, position] = value, True
    return Given(values, known)


def assert_distributed_as(found: Tensor, p: Tensor) -> None:
    """Pearson's chi-square over the pictures that are expected at least five times."""
    expected = p * N_DRAWS
    often = expected >= 5
    assert counted(found)[p == 0].sum() == 0
    observed = counted(found) * N_DRAWS
    chi2 = ((observed - expected)[often] ** 2 / expected[often]).sum()
    cells = int(often.sum()) - 1
    assert cells > 5  # more than a handful of possible pictures
    assert abs(float(chi2) - cells) < 5 * math.sqrt(2 * cells)


def test_known_values_that_come_first_condition_exactly() -> None:
    model, fixed = categorical(), {0: 2, 1: 0, 2: 1}
    found = generate(
        model, batch=N_DRAWS, length=6, given=given(fixed),
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    assert_distributed_as(found, enumerated(model, fixed))


@pytest.mark.parametrize(
    ("fixed", "block", "temperature"),
    [({3: 2, 4: 0, 5: 1}, 3, 1.0), ({1: 1, 5: 2}, 2, 1.0), ({4: 0, 5: 1}, 1, 0.7)],
)
def test_resampling_has_the_exact_conditional_distribution(
    fixed: dict[int, int], block: int, temperature: float
) -> None:
    model, exact = categorical(), enumerated(categorical(), fixed, temperature)
    generator = torch.Generator().manual_seed(1)
    forced = generate(
        model, batch=N_DRAWS, length=6, given=given(fixed), generator=generator,
        sampling=Sampling(temperature=temperature),
    )  # fmt: skip
    found, accepted = resample(
        model, given(fixed, forced), passes=12, block=block, temperature=temperature,
        generator=generator,
    )  # fmt: skip
    assert 0.1 < accepted < 1
    assert_distributed_as(found, exact)
    with pytest.raises(AssertionError):  # forcing alone does not see the known values ahead
        assert_distributed_as(forced, exact)


def test_known_values_come_back_unchanged_in_each_row() -> None:
    config = TransformerConfig(
        n_layers=1, d_model=D, n_heads=3, feed_forward=GELU(16), attention=Local2D(2, 2, 1, 1)
    )
    model = with_random_head(DecoderOnly(
        PixelEmbedding(7, 3, D), AxialEmbedding(raster((3, 4)), D), config.decoder((3, 4, 1)),
        MixtureOfLogisticsHead(D, levels=7, channels=3, components=2), d_model=D,
    ))  # fmt: skip
    values, known = torch.randint(7, (5, 12, 3)), torch.rand(5, 12) < 0.5
    condition = Condition(torch.randn(5, D))
    found = generate(model, batch=5, length=12, given=Given(values, known), condition=condition)
    assert torch.equal(found[known], values[known])
    assert not torch.equal(found[~known], values[~known])
    again, _ = resample(model, Given(found, known), passes=2, block=4, condition=condition)
    assert torch.equal(again[known], values[known])
    with pytest.raises(ValueError, match="categorical"):
        resample(model, Given(found, known), passes=1, block=4, temperature=0.9)


def test_drafts_give_the_same_values_with_known_ones() -> None:
    model = categorical()
    some = Given(torch.randint(LEVELS, (4, 6)), torch.rand(4, 6) < 0.5)
    plain, drafted = (
        generate(
            model, batch=4, length=6, given=some, draft=draft,
            generator=torch.Generator().manual_seed(5),
        )
        for draft in (None, Draft(2, 3))
    )  # fmt: skip
    assert torch.equal(plain, drafted)
