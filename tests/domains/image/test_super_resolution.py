"""Super-resolution: the small image is the mean of squares, and the model reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_image import tiny_image
from torch import nn

from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.heads import Categorical, HeadConfig, MixtureOfLogistics
from triptych.core.models.encoder_only import SequenceEncoder
from triptych.core.positions import Rotary
from triptych.decoding.sampling import sample_value
from triptych.domains.image.inference import ImageModel
from triptych.domains.image.model import (
    average_down,
)
from triptych.errors import UserError
from triptych.types import Sampling

SHAPE, SMALL, LEVELS = (4, 6, 3), (2, 3, 3), 5
BLOCKS = Local2D(2, 3, 1, 1, "blocks")


def model_of(
    attention: AttentionConfig = BLOCKS,
    head: HeadConfig | None = None,
    factor: int | None = 2,
    **options: Any,
) -> ImageModel:
    return tiny_image(SHAPE, LEVELS, attention=attention, head=head, factor=factor, **options)


def images(count: int = 3, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(LEVELS, (count, *SHAPE), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("factor", [2, 3])
def test_the_small_image_is_the_rounded_mean_of_squares(factor: int) -> None:
    pixels = torch.randint(256, (2, 6, 12, 3), dtype=torch.uint8)
    small = average_down(pixels, factor)
    assert small.dtype == torch.uint8
    assert small.shape == (2, 6 // factor, 12 // factor, 3)
    for b, r, c, channel in np.ndindex(*small.shape):
        rows = slice(r * factor, (r + 1) * factor)
        columns = slice(c * factor, (c + 1) * factor)
        mean = pixels[b, rows, columns, channel].double().mean()
        assert int(small[b, r, c, channel]) == int(mean + 0.5)
    white = torch.full((1, 6, 12, 1), 255, dtype=torch.uint8)
    assert (average_down(white, factor) == 255).all()


HEADS = [Categorical(), MixtureOfLogistics(2), MixtureOfLogistics(2, neighbours=True)]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("attention", [Full(), BLOCKS, Local2D(2, 2, 2, 1)])
def test_cached_samples_are_those_of_teacher_forcing(
    attention: AttentionConfig, head: HeadConfig
) -> None:
    trained = model_of(attention, head, n_classes=2)
    model = trained.full_model.eval()
    assert model.conditioner.small is not None
    torch.nn.init.normal_(model.conditioner.small.remaining.weight)
    small = average_down(images(), 2)
    labels = torch.tensor([0, 1, 1])
    condition = model.condition(labels, small)
    values = torch.zeros_like(model.to_sequence(images()))
    generator = torch.Generator().manual_seed(4)
    for t in range(values.shape[1]):
        with torch.no_grad():
            parameters = model.core(values, condition=condition)[:, t]
        values[:, t] = sample_value(model.core.head, parameters, Sampling(), generator)
    made = trained.upscale(small.numpy(), labels=labels.tolist(), seed=4)
    assert np.array_equal(made[:, 0], model.to_images(values).numpy())


@pytest.mark.parametrize("head", [Categorical(), MixtureOfLogistics(components=2)])
def test_the_likelihood_is_that_given_the_image_averaged_down(head: HeadConfig) -> None:
    model = model_of(head=head).full_model.eval()
    pixels = images(2)
    own, other = model.small(pixels), average_down(images(2, seed=9), 2)
    values = model.to_sequence(pixels)
    with torch.no_grad():
        found = model.nll(pixels)
        given = [model.core.nll(values, condition=model.condition(None, s)) for s in (own, other)]
    assert torch.equal(found, given[0])
    assert (found - given[1]).abs().amin() > 1e-7  # every position reads the small image
    assert model.conditioner.small is not None
    torch.nn.init.normal_(model.conditioner.small.remaining.weight)
    with torch.no_grad():
        assert (found - model.nll(pixels)).abs().amin() > 1e-7  # and its remaining pixels


def test_every_small_pixel_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of().full_model.eval()
    pixels = images(1)
    small = model.small(pixels)
    assert small is not None

    def changes() -> list[float]:
        with torch.no_grad():
            before = model.conditioner(None, small).memory
            after = []
            for row, column, channel in np.ndindex(*SMALL):
                other = small.clone()
                other[0, row, column, channel] = (int(other[0, row, column, channel]) + 1) % LEVELS
                memory = model.conditioner(None, other).memory
                assert memory is not None
                assert before is not None
                after.append(float((memory.features - before.features).abs().amin()))
        return after

    assert min(changes()) > 0  # full attention: each pixel changes the memory of all
    forward = SequenceEncoder.forward

    def blind(self: SequenceEncoder, values: torch.Tensor, real: Any = None) -> torch.Tensor:
        return forward(self, torch.zeros_like(values), real)

    monkeypatch.setattr(SequenceEncoder, "forward", blind)
    assert max(changes()) == 0


def test_without_a_factor_the_model_is_as_before() -> None:
    plain = model_of(factor=None).full_model
    assert not any("encoder" in name or "cross" in name for name in plain.state_dict())
    names = model_of().full_model.state_dict().keys()
    assert set(plain.state_dict()) < set(names)


def test_rotary_positions_of_the_decoder_leave_the_encoder_its_own() -> None:
    model = model_of(Full(), positions=Rotary()).full_model
    assert model.conditioner.small is not None
    assert not isinstance(model.conditioner.small.encoder.positions, nn.Identity)
    assert any(
        name.startswith("core.conditioner.small.encoder.positions") for name in model.state_dict()
    )
    assert torch.isfinite(model.nll(images())).all()


@pytest.mark.parametrize("factor", [3, 4, 5])
def test_a_factor_that_does_not_divide_is_refused(factor: int) -> None:
    with pytest.raises(ValueError, match=f"factor {factor} does not divide"):
        model_of(factor=factor)


def test_models_with_and_without_an_encoder_are_not_confused() -> None:
    pixels = images().numpy()
    with pytest.raises(UserError, match="no encoder of small images"):
        model_of(factor=None).upscale(pixels[:, ::2, ::2])
    with pytest.raises(UserError, match="without super-resolution"):
        model_of().sample(1)
    with pytest.raises(UserError, match="without super-resolution"):
        model_of().complete(pixels, np.ones((4, 6), bool))
    with pytest.raises(ValueError, match="exactly"):
        model_of().full_model.condition(None)
