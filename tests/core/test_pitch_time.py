"""What the relations of notes mean: the definition that the contract's fast path is judged by."""

from __future__ import annotations

import pytest
import torch
from gpu.attention_cases import layer_of

from triptych.core.attention.pitch_time import PitchTime, PitchTimeBias


def bias_of(**settings: int) -> PitchTimeBias:
    """Two heads of width 3, in double precision."""
    return PitchTimeBias(PitchTime(**settings), 2, 3).double()


def test_the_time_goes_from_the_value_read_to_the_value_predicted() -> None:
    """Written out by hand for four voices; position 0 has read nothing, which is a step back."""
    relate = bias_of(max_distance=20, n_voices=4, max_time=9)
    for query, key, distance, time in [
        (0, 0, 0, 1),  # soprano of step 0, nothing read yet
        (1, 1, 0, 0),  # alto of step 0 has just read the soprano of step 0
        (4, 4, 0, 1),  # soprano of step 1 has just read the bass of step 0
        (7, 5, 2, 0),  # bass of step 1 looks at the soprano of step 1
        (7, 4, 3, 1),  # and at the bass of step 0
        (12, 1, 11, 3),  # soprano of step 3 looks at the soprano of step 0
    ]:
        seen = relate.index(torch.tensor(query), torch.tensor(key))
        assert [int(term) for term in seen] == [distance, time], (query, key)


def test_far_distances_and_times_share_the_last_vector() -> None:
    relate = bias_of(max_distance=5, n_voices=2, max_time=3)
    seen = relate.index(torch.tensor(40), torch.tensor(1))
    assert [int(term) for term in seen] == [5, 3]


def test_each_learned_vector_belongs_to_a_relation() -> None:
    relate = bias_of(max_distance=5, n_voices=2, max_time=3, n_pitches=4)
    position, classes = torch.arange(12), relate.token_classes(torch.arange(-1, 6))
    pairs = relate.index(position.unsqueeze(1), position)
    read = [*pairs, relate.token_index(classes.unsqueeze(1), classes)]
    for index, vectors in zip(read, [*relate.tables(), relate.token_table()], strict=True):
        assert index.unique().tolist() == list(range(vectors.shape[1]))


def test_the_bias_is_the_query_times_the_vectors_of_its_relations() -> None:
    relate = bias_of(max_distance=9, n_voices=2, max_time=4, n_pitches=5)
    q = torch.randn(1, 2, 7, 3, dtype=torch.float64)
    position = torch.arange(7)
    index = relate.index(position[:, None], position[None, :])
    bias = relate(q, index)
    symbols = torch.tensor([[-1, 4, 0, 5, 2, 9, 2]])
    noted = relate.token_classes(symbols)
    by_symbols = relate(q, index, noted, noted) - bias
    for i in range(7):
        for j in range(i + 1):
            time = i // 2 - (j - 1) // 2
            vector = relate.distance[:, i - j] + relate.time[:, min(time, 4)]
            torch.testing.assert_close(bias[0, :, i, j], (q[0, :, i] * vector).sum(-1))
            here, there = symbols[0, i].item(), symbols[0, j].item()
            if not 0 <= there < 5:
                kind = 9  # a key that is no pitch
            elif not 0 <= here < 5:
                kind = 10  # a pitch, seen from none
            else:
                kind = there - here + 4
            expected = (q[0, :, i] * relate.interval[:, kind]).sum(-1)
            torch.testing.assert_close(by_symbols[0, :, i, j], expected)


def test_missing_token_ids_are_asked_for() -> None:
    layer = layer_of(PitchTime(), 12, 3, (8,))
    with pytest.raises(ValueError, match="needs token ids"):
        layer(torch.randn(1, 8, 12))
    cache = layer.init_cache(1, 8)
    with pytest.raises(ValueError, match="needs token ids"):
        layer(torch.randn(1, 8, 12), cache=cache)
    with pytest.raises(ValueError, match="needs token ids"):
        layer.step(torch.randn(1, 1, 12), cache, layer.step_context(torch.tensor([0]), cache))
    with pytest.raises(ValueError, match="max_time must be at least 1, got 0"):
        PitchTime(max_time=0)


def test_no_tensor_holds_an_interval_for_every_pair() -> None:
    """Features join the heads instead: as many as there are pitches, whatever the length."""
    relate = bias_of(n_pitches=5)
    q = torch.randn(2, 2, 30, 3, dtype=torch.float64)
    symbols = torch.randint(-1, 7, (2, 30))
    noted = relate.token_classes(symbols)
    wide_q, wide_k = relate.token_features(q, q, noted)
    assert wide_q.shape == wide_k.shape == (2, 2, 30, 3 + 6)
    index = relate.index(torch.arange(30)[:, None], torch.arange(30))
    by_symbols = relate(q, index, noted, noted) - relate(q, index)
    torch.testing.assert_close(wide_q @ wide_k.mT, q @ q.mT + by_symbols)
