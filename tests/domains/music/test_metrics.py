import math

import numpy as np
import pytest

from triptych.domains.music.metrics import count_models
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer


def chorale(*ids):
    return np.array(ids, dtype=np.int64)


def test_the_uniform_model_gives_exactly_log_v():
    assert count_models(ChoraleTokenizer(), [], [chorale(0, 1, 2, 3)]) == {"uniform": math.log(47)}


def test_without_counts_every_count_model_is_uniform():
    steps = count_models(ChoraleTokenizer(), [chorale()], [chorale(0, 1, 2, 3)])
    assert list(steps.values()) == pytest.approx([math.log(47)] * 3)


def test_counting_by_hand():
    # One voice step seen once: after the beginning came 5; then (1 + 1/2) / (1 + 47/2).
    steps = count_models(ChoraleTokenizer(), [chorale(5, 6, 7, 8)], [chorale(5, 6, 7, 8)])
    assert steps["voice and previous pitch"] == pytest.approx(-math.log(1.5 / 24.5))


def test_the_jsb_figures_are_the_known_ones(shared_data):
    source = JSBChorales(str(shared_data / "jsb-chorales"))
    train, held_out = (
        [
            ChoraleTokenizer().tokens(piece.content)
            for piece in source.load(split, ChoraleTokenizer())
        ]
        for split in ("train", "validation")
    )
    nats = count_models(ChoraleTokenizer(), train, held_out)
    assert [round(value, 3) for value in nats.values()] == [3.85, 0.938, 0.729]


def test_performances_have_a_ladder_too(busy_piece, sounding):
    kind = EventTokenizer()
    pieces = [kind.tokens(sounding(busy_piece(seed))) for seed in range(6)]
    steps = list(count_models(kind, pieces[:5], pieces[5:]).values())
    assert steps[0] == math.log(389) > steps[1]
