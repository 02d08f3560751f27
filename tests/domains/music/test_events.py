import io
import math

import numpy as np
import pretty_midi
import pytest
import torch
from pretty import midi_bytes, pretty

from triptych.domains.music.midi import parse_midi
from triptych.domains.music.notes import Notes, performance, settle, to_steps
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import (
    END,
    NOTE_OFF,
    NOTE_ON,
    SHIFT,
    SYMBOLS,
    VELOCITY,
    EventGrammar,
)

encode_notes = EventTokenizer().encode


def again(midi):
    return parse_midi(midi_bytes(midi), name="written")


def encode(midi):
    """Events of a piece as it is read from its file."""
    return encode_notes(performance(again(midi))).tolist()


def decode(ids):
    return pretty(EventTokenizer().to_score(np.array(ids, dtype=np.int64)))


def shift(steps):
    return SHIFT + steps - 1


def test_the_vocabulary_is_the_papers_with_an_end():
    names = EventTokenizer().symbols
    assert len(names) == len(set(names)) == 128 + 128 + 100 + 32 + 1
    assert [names[i] for i in (60, NOTE_OFF + 60, shift(1), shift(100), VELOCITY + 31, END)] == [
        "note_on_60", "note_off_60", "shift_10_ms", "shift_1000_ms", "velocity_31", "end",
    ]  # fmt: skip


def test_two_notes_by_hand(make_piano):
    midi = make_piano([(60, 0.5, 1.0, 66), (64, 0.5, 2.75, 67)])
    assert encode(midi) == [
        shift(50), VELOCITY + 16, NOTE_ON + 60, NOTE_ON + 64,
        shift(50), NOTE_OFF + 60, shift(100), shift(75), NOTE_OFF + 64,
    ]  # fmt: skip


def test_a_velocity_is_written_only_when_its_bin_changes(make_piano):
    midi = make_piano([(60 + i, i, i + 0.5, v) for i, v in enumerate([64, 65, 67, 68, 64])])
    assert [t - VELOCITY for t in encode(midi) if VELOCITY <= t < END] == [16, 17, 16]


def test_no_velocity_bin_decodes_to_zero_or_to_another_bin():
    for index in range(32):
        (velocity,) = EventTokenizer().decode(np.array([VELOCITY + index, NOTE_ON])).velocity
        assert 1 <= velocity <= 127
        assert velocity // 4 == index


def test_offs_come_before_ons_in_one_instant(make_piano):
    ids = encode(make_piano([(60, 0, 1, 64), (50, 1, 2, 64), (60, 1, 2, 64)]))
    at_one = ids[ids.index(shift(100)) + 1 :][:3]
    assert at_one == [NOTE_OFF + 60, NOTE_ON + 50, NOTE_ON + 60]


@pytest.mark.parametrize("gap", [0.01, 1.0, 1.01, 2.0, 99.99, 100.0])
def test_long_gaps_chain(make_piano, gap):
    ids = encode(make_piano([(60, 0, 0.5, 64), (62, 0.5 + gap, 1 + gap, 64)]))
    table = np.array(ids)
    shifts = table[(table >= SHIFT) & (table < VELOCITY)] - SHIFT + 1
    assert shifts.sum() / 100 == pytest.approx(1 + gap)
    wait = ids[ids.index(NOTE_OFF + 60) + 1 : ids.index(NOTE_ON + 62)]
    assert all(token == shift(100) for token in wait[:-1])


def test_rounding_does_not_drift(make_piano):
    # 1,000 notes of 14 ms: rounded one by one they would last 10 s, not 14 s.
    onsets = np.arange(1000) * 0.014
    midi = make_piano([(40 + i % 40, float(t), float(t) + 0.014, 64) for i, t in enumerate(onsets)])
    notes = performance(again(decode(encode(midi))))
    assert np.abs(notes.onset - onsets).max() <= 0.005 + 1e-9


def test_a_file_without_pedal_keeps_its_notes(make_piano, rows_of):
    rows = [(60, 0.0, 1.0, 66), (62, 2.0, 3.0, 66)]
    assert rows_of(decode(encode(make_piano(rows)))) == rows


TWO, APART = [(60, 0, 0.5, 66), (62, 1, 3, 66)], [(60, 0, 0.5, 66), (62, 5, 6, 66)]


@pytest.mark.parametrize(
    ("notes", "pedal", "releases"),
    [
        pytest.param(TWO, [(0.2, 64), (2, 63)], [2, 3], id="until it rises"),
        pytest.param(TWO, [(0.5, 127), (2, 0)], [2, 3], id="falls at the very release"),
        pytest.param(TWO, [(0.6, 127), (2, 0)], [0.5, 3], id="falls after the release"),
        pytest.param(TWO, [(0.2, 127)], [3, 3], id="never released"),
        pytest.param(APART, [(0, 127), (1, 0)], [1, 6], id="a note after it"),
        pytest.param([(60, 0, 0.5, 66), (60, 1, 1.5, 66)], [(0, 127), (2, 0)], [1, 2],
                     id="the next onset of the pitch ends a note"),
        pytest.param(TWO[:1], [(0.1, 100), (0.3, 127), (0.7, 80), (2, 0)], [2], id="down again"),
    ],
)  # fmt: skip
def test_the_pedal_holds_notes(make_piano, rows_of, notes, pedal, releases):
    expected = [(p, on, end, v) for (p, on, _, v), end in zip(notes, releases, strict=True)]
    assert rows_of(make_piano(notes, pedal=pedal)) == expected


def test_a_pedal_holds_its_own_instrument_only(make_piano, rows_of):
    midi = make_piano([(60, 0, 0.5, 66)], pedal=[(0, 127), (2, 0)])
    midi.instruments += make_piano([(70, 0, 0.5, 66)]).instruments
    assert rows_of(midi) == [(60, 0, 2, 66), (70, 0, 0.5, 66)]


def test_drums_are_left_out_and_instruments_merged(make_piano, rows_of):
    midi = make_piano([(60, 0, 1, 66)])
    strings = pretty_midi.Instrument(program=48)
    strings.notes.append(pretty_midi.Note(66, 64, 0.5, 1))
    drums = pretty_midi.Instrument(program=0, is_drum=True)
    drums.notes.append(pretty_midi.Note(66, 36, 0, 1))
    midi.instruments += [strings, drums]
    assert rows_of(decode(encode(midi))) == [(60, 0, 1, 66), (64, 0.5, 1, 66)]


def test_overlapping_notes_of_one_pitch_share_the_string(rows_of):
    notes = settle(Notes.of([(60, 0, 2, 66), (60, 1, 1.5, 90)]))
    assert rows_of(decode(encode_notes(notes))) == [(60, 0, 1, 66), (60, 1, 1.5, 90)]


def test_onsets_on_one_grid_point_are_one_note():
    notes = settle(Notes.of([(60, 1.001, 1.2, 30), (60, 1.004, 1.1, 90)]))
    assert [*zip(notes.pitch, notes.onset, notes.release, notes.velocity, strict=True)] == [
        (60, 1.001, 1.2, 90)
    ]


def test_a_note_without_length_lasts_ten_milliseconds(rows_of):
    notes = settle(Notes.of([(60, 1, 1, 66)]))
    assert rows_of(decode(encode_notes(notes))) == [(60, 1, 1.01, 66)]


@pytest.mark.parametrize("seed", range(8))
def test_busy_pieces_come_back_note_for_note_and_id_for_id(busy_piece, sounding, seed):
    midi = busy_piece(seed)
    expected = sounding(midi)
    ids = encode(midi)
    back = again(decode(ids))
    found = performance(back)
    order = np.lexsort((expected.pitch, to_steps(expected.onset)))
    assert len(expected) > 150
    np.testing.assert_array_equal(found.pitch, expected.pitch[order])
    assert np.abs(found.onset - expected.onset[order]).max() <= 0.005 + 1e-9
    assert np.abs(found.release - expected.release[order]).max() <= 0.005 + 1e-9
    np.testing.assert_array_equal(found.velocity // 4, expected.velocity[order] // 4)
    assert encode_notes(found).tolist() == ids


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_decodes_to_a_file_that_is_read_back(seed):
    ids = np.random.default_rng(seed).integers(0, len(SYMBOLS) - (seed % 2), 400).tolist()
    midi = decode(ids)
    reread = pretty_midi.PrettyMIDI(io.BytesIO(midi_bytes(midi)))
    n_notes = sum(len(instrument.notes) for instrument in midi.instruments)
    assert sum(len(instrument.notes) for instrument in reread.instruments) == n_notes
    normal = encode_notes(EventTokenizer().decode(np.array(ids))).tolist()
    assert encode_notes(EventTokenizer().decode(np.array(normal))).tolist() == normal
    if n_notes:
        assert encode(midi) == normal


def test_what_sounds_at_the_end_is_closed_there(rows_of):
    assert rows_of(decode([NOTE_ON + 60, shift(50)])) == [(60, 0, 0.5, 66)]
    assert rows_of(decode([NOTE_ON + 60, shift(50), END, shift(50)])) == [(60, 0, 0.5, 66)]


def test_more_than_two_hours_of_waiting_can_still_be_read():
    ids = [NOTE_ON + 60, *[shift(100)] * 12_000, NOTE_ON + 62]
    midi = again(decode(ids))
    assert midi.seconds([midi.last_tick]) == 7200
    assert encode_notes(performance(midi))[-1] == NOTE_OFF + 60


def test_a_piece_without_notes_has_no_events():
    assert encode_notes(settle(Notes.of([]))).tolist() == []


def may_follow(ids, n_prompt, steps):
    """The ids that may follow some ids, by the definition of the grammar."""
    now, sounding, struck = 0, set(), False
    for place, token in enumerate(ids):
        if token < NOTE_OFF:
            sounding.add(token)
            struck = True
        elif token < SHIFT:
            sounding.discard(token - NOTE_OFF)
        elif token < VELOCITY:
            now += (token - SHIFT + 1) * (place >= n_prompt)
            struck = False
    if now >= steps:
        return {END}
    last = ids[-1] if ids else -1
    allowed = {*range(NOTE_OFF)}
    if not VELOCITY <= last < END:
        allowed |= {*range(VELOCITY, END + 1)}
        allowed |= set() if struck else {NOTE_OFF + pitch for pitch in sounding}
        if not SHIFT <= last < shift(100):
            allowed |= {*range(SHIFT, VELOCITY)}
    return allowed


@pytest.mark.parametrize("seconds", [None, 2.5])
@pytest.mark.parametrize("n_prompt", [0, 30])
def test_the_grammar_is_its_definition(seconds, n_prompt):
    """Walks through the first and last id of each kind, where the kinds meet."""
    borders = [NOTE_ON, 127, NOTE_OFF, SHIFT - 1, SHIFT, shift(99), shift(100), VELOCITY, END - 1]
    random = np.random.default_rng(0)
    rows = [[], [], [], []]
    grammar = EventGrammar(4, seconds=seconds, n_prompt=n_prompt)
    for _ in range(80):
        forbidden = grammar(torch.tensor(rows, dtype=torch.int64).reshape(4, -1))
        for row, marks in zip(rows, forbidden, strict=True):
            allowed = may_follow(row, n_prompt, math.inf if seconds is None else seconds * 100)
            assert set((~marks).nonzero().flatten().tolist()) == allowed
            row.append(int(random.choice([*({*borders} & allowed)] or [END])))
