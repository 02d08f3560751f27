"""Chorales in which a repeated note is not a held one."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from pretty import midi_bytes, pretty

from triptych.core.attention.pitch_time import PitchTime
from triptych.domains.music.midi import parse_midi
from triptych.domains.music.notes import SILENT
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.tokenizers.attacks import AttackTokenizer, HeldNotes
from triptych.domains.music.tokenizers.chorales import VOICES, ChoraleTokenizer

TOKENIZER = AttackTokenizer()
TIES = [
    # (pitch, first sixteenth, sixteenth after the last): repeated, tied over the bar, after a rest
    [(72, 0, 4), (72, 4, 8), (74, 8, 20), (74, 20, 24)],
    [(67, 0, 1), (67, 1, 2), (67, 2, 20), (67, 22, 24)],
    [(67, 0, 14), (60, 14, 18), (60, 18, 24)],  # in unison with the alto
    [(48, 4, 8), (48, 8, 12), (36, 12, 24)],
]


def content_of_notes(voices, steps):
    """A loop from the definition: each note begins once and is held for its other sixteenths."""
    grid, struck = np.full((steps, 4), SILENT), np.zeros((steps, 4), dtype=bool)
    for voice, notes in enumerate(voices):
        for pitch, start, stop in notes:
            grid[start:stop, voice] = pitch
            struck[start, voice] = True
    return TOKENIZER.content_of(grid, struck)


def random_voices(seed, steps):
    random = np.random.default_rng(seed)
    voices = []
    for _ in VOICES:
        ends = [0, *np.flatnonzero(random.random(steps) < 0.3).tolist(), steps]
        spans = [(a, b) for a, b in pairwise(ends) if b > a]
        notes = [(int(random.integers(60, 63)), a, b) for a, b in spans]
        voices.append([note for note in notes if random.random() < 0.9 or note[2] == steps])
    return voices


@pytest.mark.parametrize("voices", [TIES, *(random_voices(seed, 24) for seed in range(4))])
def test_notes_come_back_from_ids_and_from_a_file(voices):
    ids = TOKENIZER.encode(content_of_notes(voices, 24))
    midi = pretty(TOKENIZER.to_score(ids))
    step = TOKENIZER.seconds_per_unit
    found = [
        [(n.pitch, round(n.start / step), round(n.end / step)) for n in part.notes]
        for part in midi.instruments
    ]
    assert found == voices
    assert TOKENIZER.onsets(ids).sum() == sum(map(len, voices))
    read = TOKENIZER.from_midi(parse_midi(midi_bytes(midi), name="x"))
    np.testing.assert_array_equal(TOKENIZER.encode(read), ids)
    up = TOKENIZER.transpose(ids, 2)
    np.testing.assert_array_equal(
        TOKENIZER.id_pitches[up], np.where(ids == 92, SILENT, TOKENIZER.id_pitches[ids] + 2)
    )
    assert (TOKENIZER.onsets(up) == TOKENIZER.onsets(ids)).all()


def test_a_voice_holds_the_pitch_that_it_sang_and_no_other():
    rule = HeldNotes(TOKENIZER.id_pitches)
    begun, held, rest = 10, 10 + 46, 92
    values = torch.tensor([[begun, 3, 4, 5], [held, 3, 4, 5], [rest, begun, 4, 5]])
    for row, forbidden in zip(values, rule(values), strict=True):
        permitted = {held} if row[0] != rest else set()
        expected = [i for i in range(46, 92) if i not in permitted]
        assert forbidden.nonzero().flatten().tolist() == expected
    assert rule(values[:, :3])[:, 46:92].all()
    ids = TOKENIZER.encode(content_of_notes(TIES, 24))
    for t, token in enumerate(ids):
        assert not rule(torch.from_numpy(ids[None, :t]))[0, token]


def test_a_held_pitch_that_did_not_sound_begins_a_note():
    ids = np.random.default_rng(0).integers(0, 93, 203)
    parse_midi(midi_bytes(TOKENIZER.to_score(ids)), name="x")
    part = pretty(TOKENIZER.to_score(np.array([46, 92, 92, 92]))).instruments[0]
    assert [note.pitch for note in part.notes] == [36]


def test_attention_reads_the_pitch_of_a_held_note():
    bias = PitchTime(n_pitches=46, ids_per_pitch=2).relative_bias(1, 4, causal=True)
    pitches = np.where(TOKENIZER.id_pitches == SILENT, 46, TOKENIZER.id_pitches - 36)
    assert bias.token_classes(torch.arange(93)).tolist() == pitches.tolist()
    assert bias.token_classes(torch.tensor([-1])).tolist() == [46]


def test_grids_without_attacks_are_refused():
    with pytest.raises(ValueError, match="grids of four voices"):
        JSBChorales("x").check(TOKENIZER)


def test_the_model_without_attacks_reads_the_same_files_as_before():
    grid = np.array([[72, 67, 60, 48]] * 4)
    assert ChoraleTokenizer().content_of(grid, np.ones(grid.shape, dtype=bool)) is grid
