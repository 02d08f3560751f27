import math

import numpy as np
import pytest

from triptych.domains.music.baselines import ladder
from triptych.domains.music.events import reference_notes
from triptych.domains.music.representation import ChoraleGrid, PerformanceEvents, Piece
from triptych.domains.music.sources import JSBChorales


def test_the_uniform_model_gives_exactly_log_v():
    assert ladder(ChoraleGrid(), [], [np.array([0, 1, 2, 3])])["uniform"] == math.log(47)


def test_without_training_every_count_model_is_uniform():
    steps = ladder(ChoraleGrid(), [np.array([], dtype=np.int64)], [np.array([0, 1, 2, 3])])
    assert list(steps.values()) == pytest.approx([math.log(47)] * 3)


def test_counting_by_hand():
    # One voice step seen once: after the beginning came 5; then (1 + 1/2) / (1 + 47/2).
    steps = ladder(ChoraleGrid(), [np.array([5, 6, 7, 8])], [np.array([5, 6, 7, 8])])
    assert steps["voice and previous pitch"] == pytest.approx(-math.log(1.5 / 24.5))


def test_the_jsb_figures_are_the_known_ones(shared_data):
    source = JSBChorales(str(shared_data / "jsb-chorales"))
    kind = ChoraleGrid()
    train, held_out = (
        [kind.tokens(piece) for piece in source.load(split)] for split in ("train", "validation")
    )
    assert [round(nats, 3) for nats in ladder(kind, train, held_out).values()] == [
        3.85, 0.938, 0.729,
    ]  # fmt: skip


def test_performances_have_a_ladder_too(busy_piece):
    kind = PerformanceEvents()
    tokens = [kind.tokens(Piece("p", reference_notes(busy_piece(seed)))) for seed in range(6)]
    steps = list(ladder(kind, tokens[:5], tokens[5:]).values())
    assert steps[0] == math.log(389) > steps[1]
