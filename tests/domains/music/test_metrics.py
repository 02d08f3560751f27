import math

import numpy as np
import pytest

from triptych.domains.music.metrics import count_models
from triptych.domains.music.sources.jsb import JSBChorales
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer


def test_the_uniform_model_gives_exactly_log_v():
    assert count_models(ChoraleTokenizer(), [], [np.array([0, 1, 2, 3])])["uniform"] == math.log(47)


def test_without_training_every_count_model_is_uniform():
    steps = count_models(
        ChoraleTokenizer(), [np.array([], dtype=np.int64)], [np.array([0, 1, 2, 3])]
    )
    assert list(steps.values()) == pytest.approx([math.log(47)] * 3)


def test_counting_by_hand():
    # One voice step seen once: after the beginning came 5; then (1 + 1/2) / (1 + 47/2).
    steps = count_models(ChoraleTokenizer(), [np.array([5, 6, 7, 8])], [np.array([5, 6, 7, 8])])
    assert steps["voice and previous pitch"] == pytest.approx(-math.log(1.5 / 24.5))


def test_the_jsb_figures_are_the_known_ones(shared_data):
    source = JSBChorales(str(shared_data / "jsb-chorales"))
    kind = ChoraleTokenizer()
    train, held_out = (
        [kind.tokens(piece.content) for piece in source.load(split)]
        for split in ("train", "validation")
    )
    assert [round(nats, 3) for nats in count_models(kind, train, held_out).values()] == [
        3.85, 0.938, 0.729,
    ]  # fmt: skip


def test_performances_have_a_ladder_too(busy_piece, sounding):
    kind = EventTokenizer()
    tokens = [kind.tokens(sounding(busy_piece(seed))) for seed in range(6)]
    steps = list(count_models(kind, tokens[:5], tokens[5:]).values())
    assert steps[0] == math.log(389) > steps[1]
