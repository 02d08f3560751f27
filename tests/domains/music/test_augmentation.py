from dataclasses import replace

import numpy as np
import pytest
import torch

from triptych.domains.music.tokenizers.base import Augmentation
from triptych.domains.music.tokenizers.chorales import SILENT, ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.notes import Notes, stretch

NO_AUGMENTATION = Augmentation(transpose=0, stretch=(1.0,))
vary_notes, transpose_grid = EventTokenizer().augment, ChoraleTokenizer().augment
encode_notes, decode_notes = EventTokenizer().encode, EventTokenizer().decode


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_stretching_by_one_is_exactly_the_identity(busy_piece, sounding):
    notes = sounding(busy_piece(0))
    assert stretch(notes, 1.0) is notes
    assert vary_notes(notes, NO_AUGMENTATION, generator()).onset is not None
    same = vary_notes(notes, NO_AUGMENTATION, generator())
    np.testing.assert_array_equal(encode_notes(same), encode_notes(notes))


@pytest.mark.parametrize("factor", [0.5, 0.95, 1.025, 2.0])
def test_stretching_moves_all_times_and_stays_encodable(busy_piece, sounding, factor):
    notes = sounding(busy_piece(1))
    longer = stretch(notes, factor)
    assert longer.onset[-1] == pytest.approx(notes.onset[-1] * factor)
    ids = encode_notes(longer)
    again = decode_notes(ids)
    assert len(again) == len(longer)
    assert np.abs(again.onset - longer.onset[np.argsort(longer.onset)]).max() <= 0.005 + 1e-9


def test_a_copy_that_leaves_the_range_is_not_made():
    shifts = Augmentation(transpose=3).shifts
    assert shifts(np.array([60, 107]), 21, 108) == [-3, -2, -1, 0, 1]
    assert shifts(np.array([21, 108]), 21, 108) == [0]
    assert shifts(np.array([5, 60]), 21, 108) == [0]


def test_whole_performances_are_transposed(make_piano, sounding):
    notes = sounding(make_piano([(107, 0, 1, 64), (60, 0, 1, 64)]))
    seen = set()
    for seed in range(60):
        varied = vary_notes(notes, Augmentation(stretch=(1.0,)), generator(seed))
        shifts = set((varied.pitch - notes.pitch).tolist())
        assert len(shifts) == 1
        seen |= shifts
    assert seen == {-3, -2, -1, 0, 1}


def test_chorales_keep_their_rests_and_their_range():
    grid = np.array([[79, 60, 55, 40], [SILENT, 60, 55, 38]])
    seen = set()
    for seed in range(80):
        varied = transpose_grid(grid, Augmentation(transpose=5), generator(seed))
        assert varied[1, 0] == SILENT
        assert len(set((varied - grid)[grid != SILENT].tolist())) == 1
        seen.add(int(varied[0, 1] - 60))
    assert seen == {-2, -1, 0, 1, 2}


def test_the_same_generator_gives_the_same_copy(busy_piece, sounding):
    notes = sounding(busy_piece(2))
    one, two = (vary_notes(notes, Augmentation(), generator(5)) for _ in range(2))
    np.testing.assert_array_equal(one.onset, two.onset)
    np.testing.assert_array_equal(one.pitch, two.pitch)


def test_the_original_is_left_alone(busy_piece, sounding):
    notes = sounding(busy_piece(3))
    before = replace(notes, pitch=notes.pitch.copy(), onset=notes.onset.copy())
    vary_notes(notes, Augmentation(transpose=3, stretch=(0.95,)), generator())
    np.testing.assert_array_equal(notes.onset, before.onset)
    np.testing.assert_array_equal(notes.pitch, before.pitch)


@pytest.mark.parametrize("settings", [{"transpose": -1}, {"stretch": ()}, {"stretch": (0.0,)}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match=r"transpose|stretch"):
        Augmentation(**settings)


def test_a_piece_near_the_longest_is_not_stretched_beyond_it() -> None:
    notes = Notes(
        pitch=np.array([60, 62]),
        onset=np.array([0.0, 7000.0]),
        release=np.array([1.0, 7001.0]),
        velocity=np.array([80, 80]),
    )
    settings = Augmentation(transpose=0, stretch=(0.95, 1.05))
    generator = torch.Generator().manual_seed(0)
    ends = {float(vary_notes(notes, settings, generator).release.max()) for _ in range(20)}
    assert max(ends) <= 7200
    only = Augmentation(transpose=0, stretch=(1.05,))
    assert vary_notes(notes, only, generator).release.max() == pytest.approx(7001)
