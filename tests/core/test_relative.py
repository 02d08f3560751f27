"""What is special to relative attention: its table, its skews, and its far end."""

from __future__ import annotations

import pytest
import torch

from triptych.core.attention.relative import (
    Relative,
    RelativePattern,
    skew,
    skew_both_ways,
    skew_two_runs,
)

LENGTH = 6


def distances(first: int, last: int) -> torch.Tensor:
    """Rows that hold the distance each column stands for: falling from first to last."""
    return torch.arange(first, last - 1, -1).expand(LENGTH, -1)


def test_each_skew_puts_every_distance_where_it_belongs() -> None:
    i = torch.arange(LENGTH).unsqueeze(1)
    wanted = i - torch.arange(LENGTH)
    seen = skew(distances(LENGTH - 1, 0))
    assert torch.equal(seen.tril(), wanted.tril())
    assert torch.equal(skew_both_ways(distances(LENGTH - 1, 1 - LENGTH)), wanted)
    wanted = LENGTH + i - torch.arange(2 * LENGTH)
    seen = skew_two_runs(distances(LENGTH - 1, 0))
    inside = (wanted >= 0) & (wanted < LENGTH)
    assert torch.equal(seen[inside], wanted[inside])


def pattern(causal: bool) -> RelativePattern:
    return RelativePattern(n_heads=1, d_head=1, max_distance=2, window=None, causal=causal)


@pytest.mark.parametrize("causal", [True, False])
def test_beyond_the_longest_distance_the_farthest_vector_serves(causal: bool) -> None:
    """One meaning, not two: neither zero, nor another distance's vector, nor a crash."""
    layer = pattern(causal)
    with torch.no_grad():
        # Vectors of width 1 that hold their own distance.
        layer.table.copy_(torch.arange(0 if causal else -2, 3).view(1, -1, 1))
    position = torch.arange(7).unsqueeze(0)
    seen = layer.bias(torch.ones(1, 1, 7, 1), position, position)[0, 0]
    distance = position.T - position
    if causal:
        assert torch.equal(seen.tril(), distance.clamp(0, 2).float().tril())
    else:
        assert torch.equal(seen, distance.clamp(-2, 2).float())


def test_there_is_no_tensor_of_length_by_length_by_width() -> None:
    """What training keeps grows with L x L, never with L x L x E."""
    length, width = 64, 32
    layer = Relative(max_distance=length).build(width, 1, (length,), causal=True)
    largest = 0

    def note(saved: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        layer(torch.randn(1, length, width, requires_grad=True)).sum().backward()
    assert largest <= length * (length + 1)


def test_impossible_settings_are_refused() -> None:
    for wrong in ({"max_distance": 0}, {"window": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Relative(**wrong)
