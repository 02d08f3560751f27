"""Statistics of pieces: computed by hand, and by MusPy."""

import math

import numpy as np
import pytest
from pretty import new_midi, notes_of, pretty

from triptych.domains.music import statistics as st
from triptych.domains.music.notes import Notes, on_grid
from triptych.domains.music.statistics import piece_statistics
from triptych.domains.music.tokenizers.chorales import VOICES, ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer

CHORALES, EVENTS = ChoraleTokenizer(), EventTokenizer()
R = -1


def table_of(grid):
    midi = pretty(CHORALES.to_score(CHORALES.encode(np.array(grid))))
    return on_grid(notes_of(midi), CHORALES.steps_per_second)


def of_grid(grid):
    return piece_statistics(table_of(grid), CHORALES)


def hand_made():
    """A bar and a quarter: three notes, a quarter's rest, three voices on the last quarter."""
    grid = np.full((20, 4), R)
    grid[0:8, 0] = 72  # C5
    grid[8:10, 0] = 74  # D5
    grid[0:4, 1] = 60  # C4
    grid[16:20] = [67, 60, 48, R]  # G4, C4, C3
    return grid


def test_a_piece_by_hand():
    found = of_grid(hand_made())
    # Six notes: C five times less one D and one G: C 4, D 1, G 1.
    shares = np.array([4, 1, 1]) / 6
    assert found["pitch_class_entropy"] == pytest.approx(-(shares * np.log2(shares)).sum())
    assert found["scale_consistency"] == 1  # C, D and G belong to C major
    # Steps with 1, 2 and 3 pitches: 4 to 9, 0 to 3, 16 to 19; steps 10 to 15 are silent.
    assert found["polyphony"] == pytest.approx((6 * 1 + 4 * 2 + 4 * 3) / 14)
    assert found["polyphony_rate"] == pytest.approx(4 / 20)
    assert found["pitch_range"] == 74 - 48
    assert found["n_pitches"] == 5
    assert found["notes_per_second"] == pytest.approx(6 / 4)  # 20 sixteenths are 4 s
    assert found["notes_per_bar"] == pytest.approx(6 / (20 / 16))
    # Onsets at 0 and 8 of the first bar, at 0 of the second one: 15 of 16 steps agree.
    assert found["groove_consistency"] == pytest.approx(15 / 16)
    assert found["empty_beat_rate"] == pytest.approx(1 / 5)  # the fourth quarter


def test_the_scale_is_the_best_of_all_keys():
    natural_minor = [57, 59, 60, 62, 64, 65, 67]
    grid = [[p + 1, R, R, R] for p in [*natural_minor, natural_minor[0] + 4]]  # one foreign note
    assert of_grid(grid)["scale_consistency"] == pytest.approx(7 / 8)


def test_a_unison_is_one_pitch():
    found = of_grid([[60, 60, R, R]] * 4)
    assert found["polyphony"] == 1
    assert found["n_pitches"] == 1


def test_a_piece_without_notes_has_no_statistics_but_zero_pitches():
    found = of_grid(np.zeros((0, 4), dtype=np.int64))
    assert found.pop("n_pitches") == 0
    assert all(math.isnan(value) for value in found.values())
    assert math.isnan(piece_statistics(table_of([[R] * 4] * 3), CHORALES)["polyphony"])


def test_a_performance_has_neither_bars_nor_voices():
    notes = Notes.of([(60, 0.0, 1.0, 64), (64, 0.5, 2.0, 64)])
    table = on_grid(
        notes_of(pretty(EVENTS.to_score(EVENTS.encode(notes)))), EVENTS.steps_per_second
    )
    found = piece_statistics(table, EVENTS)
    assert set(found) == {
        "pitch_class_entropy", "scale_consistency", "polyphony", "polyphony_rate", "pitch_range",
        "n_pitches", "notes_per_second",
    }  # fmt: skip
    assert found["notes_per_second"] == pytest.approx(1)
    assert found["polyphony"] == pytest.approx(2.5 / 2)
    assert table.release.tolist() == [100, 200]


# Voice leading


def leading(*steps):
    return st.voice_leading(np.array(steps))


def test_parallel_fifths_and_octaves_by_hand():
    fifths = leading([67, R, R, 60], [69, R, R, 62])
    assert fifths == {"voice_crossings": 0, "parallel_fifths": 100, "parallel_octaves": 0}
    octaves = leading([72, R, R, 60], [74, R, R, 62], [74, R, R, 62], [77, R, R, 65])
    assert octaves["parallel_octaves"] == 100  # two in two transitions; the held step is none
    compound = leading([79, R, R, 60], [81, R, R, 62])  # a twelfth
    assert compound["parallel_fifths"] == 100
    unison = leading([60, 60, R, R], [62, 62, R, R])
    assert unison["parallel_octaves"] == 100
    all_voices = leading([72, 67, 60, 48], [74, 69, 62, 50])
    # Fifths: alto over tenor and over bass. Octaves: three pairs of C.
    assert (all_voices["parallel_fifths"], all_voices["parallel_octaves"]) == (200, 300)


@pytest.mark.parametrize(
    "steps",
    [
        ([67, R, R, 60], [67, R, R, 60]),  # held
        ([67, R, R, 60], [69, R, R, 60]),  # one voice moves
        ([72, R, R, 60], [67, R, R, 67]),  # contrary motion into a unison
        ([67, R, R, 60], [72, R, R, 64]),  # a fifth, then a sixth
        ([69, R, R, 60], [71, R, R, 64]),  # a sixth, then a fifth
        ([65, R, R, 60], [67, R, R, 62]),  # fourths
        ([67, R, R, 60], [R, R, R, R], [69, R, R, 62]),  # with a rest between
    ],
)
def test_what_is_not_parallel(steps):
    found = leading(*steps)
    assert not found["parallel_fifths"] > 0
    assert not found["parallel_octaves"] > 0


def test_a_crossing_counts_once_where_it_begins():
    steps = [[67, 64, 55, 48], [60, 64, 55, 48], [60, 64, 55, 48], [65, 64, 55, 48]]
    assert leading(*steps)["voice_crossings"] == pytest.approx(100 / 2)
    again = [*steps, [60, 64, 66, 48]]  # soprano below alto, alto below tenor
    assert leading(*again)["voice_crossings"] == pytest.approx(100 * 3 / 3)
    assert leading([64, 64, R, R], [65, 64, R, R])["voice_crossings"] == 0  # a unison


def test_notes_out_of_the_range_of_their_voice():
    grid = [[59, 60, 60, 40], [60, 60, 60, 40], [80, 60, 68, 40], [79, 60, 60, 39]]
    found = of_grid(grid)
    assert found["soprano_out_of_range"] == pytest.approx(100 * 2 / 4)
    assert found["alto_out_of_range"] == 0
    assert found["tenor_out_of_range"] == pytest.approx(100 * 1 / 3)
    assert found["bass_out_of_range"] == pytest.approx(100 * 1 / 2)
    assert list(CHORALES.voice_ranges) == list(VOICES)


# Groups of pieces


def test_a_summary_leaves_out_pieces_without_a_measure():
    pieces = [{"a": 1.0, "b": math.nan}, {"a": 4.0, "b": math.nan}, {"a": math.nan, "b": math.nan}]
    assert st.means_and_deviations(pieces) == {
        "a": {"mean": 2.5, "std": 1.5, "pieces": 2},
        "b": {"mean": None, "std": None, "pieces": 0},
    }
    assert st.means_and_deviations([]) == {}


# MusPy, version 0.5.0

NOTES = (
    (74, 1, 7), (74, 7, 13), (59, 13, 21), (59, 35, 37), (48, 1, 2), (63, 7, 13), (70, 13, 17),
    (60, 37, 38), (59, 17, 21), (55, 21, 25), (55, 43, 45), (75, 46, 47), (68, 39, 41),
    (55, 48, 55), (75, 41, 45), (51, 56, 59), (69, 64, 69), (73, 74, 81), (62, 81, 87),
    (49, 46, 49), (52, 1, 3), (55, 7, 9), (58, 13, 15), (61, 35, 37), (64, 1, 3), (67, 7, 9),
)  # fmt: skip
"""Pitch, onset and release in sixteenths; none ends at a beat."""
MUSPY = {
    "pitch_class_entropy": 3.166812680413122, "scale_consistency": 0.6538461538461539,
    "polyphony": 1.4285714285714286, "polyphony_rate": 0.06896551724137931, "pitch_range": 27,
    "n_pitches": 19, "groove_consistency": 0.725, "empty_beat_rate": 0.09090909090909094,
}  # fmt: skip
"""What it computes of these notes."""


def test_the_values_are_those_of_muspy():
    found = piece_statistics(Notes.of((*note, 80) for note in NOTES), CHORALES)
    assert {name: found[name] for name in MUSPY} == pytest.approx(MUSPY)


def test_where_the_values_differ_from_muspy():
    """A bar that is full: MusPy adds an empty bar, and a beat that the last note fills."""
    found = piece_statistics(Notes.of([(60, 0, 4, 80), (60, 16, 32, 80)]), CHORALES)
    assert found["groove_consistency"] == 1  # 31 / 32 by MusPy
    assert found["empty_beat_rate"] == pytest.approx(3 / 8)  # 2 / 9 by MusPy


def test_drums_are_left_out(make_piano):
    midi = make_piano([(60, 0, 1, 64)])
    drums = make_piano([(35, 0, 5, 64)]).instruments[0]
    drums.is_drum = True
    midi.instruments.append(drums)
    table = on_grid(notes_of(midi), 100)
    assert (table.pitch.tolist(), table.release.tolist()) == ([60], [100])
    assert len(on_grid(notes_of(new_midi()), 100)) == 0
