"""A mask that depends on the example, which the contract of causal variants does not allow."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpu.attention_cases import Example, build
from own_prefix import PrefixLM

from triptych.core.attention.grouped import GroupedQueries
from triptych.core.state import ForwardContext

END, LENGTHS = 0, (1, 3, 6)
"""Token that ends a prefix, and the prefix of each row of a batch."""


def tokens() -> torch.Tensor:
    ids = torch.ones(len(LENGTHS), 9, dtype=torch.int64)
    for row, length in enumerate(LENGTHS):
        ids[row, length - 1] = END
    ids[:, 8] = END  # a later one ends nothing
    return ids


def test_a_prefix_sees_itself_and_the_rest_sees_its_past() -> None:
    layer = build(Example(PrefixLM(end=END), (9,)))
    x = torch.randn(3, 9, 12, dtype=torch.float64, requires_grad=True)
    y = layer(x, ForwardContext(token_ids=tokens()))
    for row, length in enumerate(LENGTHS):
        for query in range(9):
            (gradient,) = torch.autograd.grad(y[row, query].sum(), x, retain_graph=True)
            seen = (gradient[row] != 0).any(-1).nonzero().flatten().tolist()
            assert seen == list(range(max(query + 1, length if query < length else 0)))


@pytest.mark.parametrize("row", range(3))
def test_a_prefix_is_read_at_once_and_then_steps_follow(row: int) -> None:
    layer = build(Example(PrefixLM(end=END), (9,)))
    ids, length = tokens()[row : row + 1], LENGTHS[row]
    x = torch.randn(1, 9, 12, dtype=torch.float64)
    cache = layer.init_cache(1, 9)
    parts = [layer(x[:, :length], ForwardContext(token_ids=ids[:, :length]), cache)]
    for t in range(length, 9):
        now = layer.step_context(torch.tensor([t]), cache)
        parts.append(layer.step(x[:, t : t + 1], cache, replace(now, token_ids=ids[:, t : t + 1])))
    whole = layer(x, ForwardContext(token_ids=ids))
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


def test_shared_heads_shrink_the_cache() -> None:
    layer = build(Example(GroupedQueries(n_key_heads=1), (9,)))
    assert layer.init_cache(2, 9)["key"].shape == (2, 1, 9, 4)
    with pytest.raises(ValueError, match="n_key_heads must divide n_heads, 3; got 2"):
        build(Example(GroupedQueries(n_key_heads=2), (9,)))
