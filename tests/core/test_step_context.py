"""Step contexts: computed for many steps at once, and without waits for the device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpu.attention_cases import CAUSAL, D_MODEL, Example, build, length_of, name


@pytest.mark.parametrize("example", CAUSAL, ids=name)
def test_contexts_of_many_steps_are_those_of_each(example: Example) -> None:
    """Also for cache views, whose slots are fewer than those of the cache."""
    layer = build(example)
    length = length_of(example)
    cache = layer.cache_view(layer.init_cache(2, length), length - 2)
    positions = torch.arange(2, length - 2)
    together = layer.step_context(positions.unsqueeze(1), cache)
    for index, position in enumerate(positions):
        found, single = together.at(index), layer.step_context(position.view(1), cache)
        assert torch.equal(found.positions, single.positions)
        assert torch.equal(found.slots, single.slots)
        assert torch.equal(found.mask, single.mask)
        for term, expected in zip(found.relative_index, single.relative_index, strict=True):
            assert torch.equal(term, expected)


@pytest.mark.parametrize("example", CAUSAL, ids=name)
def test_contexts_wait_for_no_device(example: Example) -> None:
    """On a device without values every look at one is an error."""
    layer = build(example).to("meta")
    cache = layer.init_cache(2, length_of(example))
    together = layer.step_context(torch.arange(1, 5, device="meta").unsqueeze(1), cache)
    x = torch.empty(2, 1, D_MODEL, dtype=torch.float64, device="meta")
    ids = torch.empty(2, 1, dtype=torch.int64, device="meta")
    assert layer.step(x, cache, replace(together.at(0), token_ids=ids)).shape == x.shape
