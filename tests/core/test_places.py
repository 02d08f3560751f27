"""What steps at many positions need, made at once."""

from __future__ import annotations

import pytest
import torch
from attention_cases import CAUSAL, D_MODEL, build, length_of, name

from triptych.core.attention.interface import Example, SelfAttention


@pytest.mark.parametrize("example", CAUSAL, ids=name)
def test_places_of_many_positions_are_those_of_each(example: Example) -> None:
    """In the views that a step is given too, whose slots are fewer than the state's."""
    layer = build(example)
    length = length_of(example)
    state = layer.narrow(layer.empty_state(2, length), length - 2)
    positions = torch.arange(2, length - 2)
    places = layer.places(positions, state)
    assert len(places) == len(positions)
    for position, place in zip(positions, places, strict=True):
        single = layer.place(position, state)
        assert place is not None
        assert single is not None
        assert place.start == single.slot.item()
        for found, expected in zip(place[:4], single[:4], strict=True):
            assert (found is None) == (expected is None)
            if found is not None:
                assert found.shape == expected.shape
                assert torch.equal(found, expected)


@pytest.mark.parametrize("example", CAUSAL, ids=name)
def test_places_wait_for_no_device(example: Example) -> None:
    """On a device without values every look at one is an error."""
    layer = build(example).to("meta")
    state = layer.empty_state(2, length_of(example))
    places = layer.places(torch.arange(1, 5, device="meta"), state)
    assert [place and place.start for place in places] == [None] * 4
    x = torch.empty(2, 1, D_MODEL, dtype=torch.float64, device="meta")
    position = torch.tensor(1, device="meta")
    assert layer.step(x, position, state, places[0]).shape == x.shape


def test_a_variant_that_makes_places_one_by_one_is_served_too() -> None:
    """What a new variant inherits: as many, each its own."""
    layer = build(CAUSAL[0])
    state = layer.empty_state(2, length_of(CAUSAL[0]))
    positions = torch.tensor([1, 4, 2])
    places = SelfAttention.places(layer, positions, state)
    assert len(places) == 3
    for position, place in zip(positions, places, strict=True):
        expected = layer.place(position, state)
        assert place is not None
        assert expected is not None
        assert torch.equal(place.slot, expected.slot)
        assert torch.equal(place.mask, expected.mask)
