"""What steps at many positions need, made at once."""

from __future__ import annotations

import pytest
import torch
from attention_cases import CAUSAL, D_MODEL, build, length_of, name

from triptych.core.attention.base import Example, SelfAttention
from triptych.core.attention.full import Full
from triptych.core.attention.local2d import Local2D


@pytest.mark.parametrize("example", CAUSAL, ids=name)
def test_places_of_many_positions_are_those_of_each(example: Example) -> None:
    """In the views that a step is given too, whose slots are fewer than the state's."""
    layer = build(example)
    length = length_of(example)
    state = layer.narrow(layer.init_cache(2, length), length - 2)
    positions = torch.arange(2, length - 2)
    places = layer.places(positions, state)
    assert len(places) == len(positions)
    for position, place in zip(positions, places, strict=True):
        single = layer.place(position, state)
        assert place is not None
        assert single is not None
        assert place.start == single.slot.item()
        assert single.mask is not None
        relation = single.relation
        if place.n_read is not None:
            visible = torch.arange(single.mask.shape[-1]) < place.n_read
            assert torch.equal(single.mask == 0, visible.unsqueeze(0))
            assert place.mask is None
            relation = tuple(term[..., : place.n_read] for term in relation)
        else:
            assert place.mask is not None
            assert torch.equal(place.mask, single.mask)
        pairs = [(place.slot, single.slot), (place.read, single.read)]
        for found, expected in (*pairs, *zip(place.relation, relation, strict=True)):
            assert (found is None) == (expected is None)
            if found is not None:
                assert found.shape == expected.shape
                assert torch.equal(found, expected)


def test_where_the_first_slots_are_visible_no_mask_is_needed() -> None:
    full, local = (
        build(next(example for example in CAUSAL if isinstance(example.config, kind)))
        for kind in (Full, Local2D)
    )
    places = full.places(torch.arange(1, 6), full.init_cache(2, 13))
    assert [place and place.n_read for place in places] == [2, 3, 4, 5, 6]
    within = local.places(torch.arange(1, 6), local.init_cache(2, 72))
    assert [place and place.n_read for place in within] == [None] * 5  # it chooses its slots


def test_a_step_with_what_was_made_before_is_the_step_without() -> None:
    for example in CAUSAL:
        layer = build(example)
        length = length_of(example)
        x = torch.randn(2, length, D_MODEL, dtype=torch.float64)
        states = [layer.init_cache(2, length) for _ in range(2)]
        places = layer.places(torch.arange(length), states[0])
        for t in range(length):
            position, now = torch.tensor(t), x[:, t : t + 1]
            with_place = layer.step(now, position, states[0], places[t])
            without = layer.step(now, position, states[1])
            torch.testing.assert_close(with_place, without, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("example", CAUSAL, ids=name)
def test_places_wait_for_no_device(example: Example) -> None:
    """On a device without values every look at one is an error."""
    layer = build(example).to("meta")
    state = layer.init_cache(2, length_of(example))
    places = layer.places(torch.arange(1, 5, device="meta"), state)
    assert [place and place.start for place in places] == [None] * 4
    x = torch.empty(2, 1, D_MODEL, dtype=torch.float64, device="meta")
    position = torch.tensor(1, device="meta")
    assert layer.step(x, position, state, places[0]).shape == x.shape


def test_a_variant_that_makes_places_one_by_one_is_served_too() -> None:
    """What a new variant inherits: as many, each its own."""
    layer = build(CAUSAL[0])
    state = layer.init_cache(2, length_of(CAUSAL[0]))
    positions = torch.tensor([1, 4, 2])
    places = SelfAttention.places(layer, positions, state)
    assert len(places) == 3
    for position, place in zip(positions, places, strict=True):
        expected = layer.place(position, state)
        assert place is not None
        assert expected is not None
        assert torch.equal(place.slot, expected.slot)
        assert torch.equal(place.mask, expected.mask)
