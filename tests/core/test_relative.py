"""What is special to relative attention: its table, its skews, and its far end."""

from __future__ import annotations

import pytest
import torch

from triptych.core.attention.relative import DistanceBias, Relative


@pytest.mark.parametrize("causal", [True, False])
def test_beyond_the_longest_distance_the_farthest_vector_serves(causal: bool) -> None:
    """One meaning, not two: neither zero, nor another distance's vector, nor a crash."""
    bias = DistanceBias(1, 1, max_distance=2, causal=causal)
    with torch.no_grad():
        # Vectors of width 1 that hold their own distance.
        bias.table.copy_(torch.arange(0 if causal else -2, 3).view(1, -1, 1))
    position = torch.arange(7).unsqueeze(0)
    index = bias.index(position.T, position)
    seen = bias(torch.ones(1, 1, 7, 1), index)[0, 0]
    distance = position.T - position
    if causal:
        assert torch.equal(seen.tril(), distance.clamp(0, 2).float().tril())
    else:
        assert torch.equal(seen, distance.clamp(-2, 2).float())


def test_impossible_settings_are_refused() -> None:
    for wrong in ({"max_distance": 0}, {"window": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Relative(**wrong)
