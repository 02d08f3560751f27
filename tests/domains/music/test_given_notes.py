"""Given notes: what is kept, what comes back, and the distribution of the rest."""

from __future__ import annotations

import numpy as np
import pretty_midi
import pytest
import torch
from enumerable import LEVELS, categorical
from pretty import midi_bytes, pretty
from tiny_music import Chorales, tiny_model, windows_of

from triptych.decoding.sampling import Given, SampleRequest
from triptych.domains.music.generation import complete_tokens
from triptych.domains.music.midi import parse_midi
from triptych.domains.music.notes import SILENT
from triptych.domains.music.tokenizers.attacks import AttackTokenizer, HeldNotes
from triptych.domains.music.tokenizers.chorales import SECONDS_PER_STEP, VOICES, ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.errors import UserError

CHORALES = ChoraleTokenizer()


def parsed(midi: pretty_midi.PrettyMIDI) -> object:
    return parse_midi(midi_bytes(midi), name="tune.mid")


def voice(name: str, notes: list[tuple[int, int, int]]) -> pretty_midi.Instrument:
    """A part of notes as (pitch, first sixteenth, sixteenth after the last one)."""
    part = pretty_midi.Instrument(program=0, name=name)
    for pitch, first, stop in notes:
        span = first * SECONDS_PER_STEP, stop * SECONDS_PER_STEP
        part.notes.append(pretty_midi.Note(80, pitch, *span))
    return part


def piece(*parts: pretty_midi.Instrument) -> pretty_midi.PrettyMIDI:
    midi = pretty_midi.PrettyMIDI(initial_tempo=75.0, resolution=500)
    midi.instruments += parts
    return midi


TUNE = [(67, 0, 4), (67, 4, 8), (69, 10, 12), (71, 12, 40)]
"""The first note is struck twice, and there is a rest."""
CHORALE = piece(
    voice("Soprano", TUNE), voice("Alto", [(60, 0, 40)]),
    voice("Tenor", [(55, 0, 20), (55, 20, 40)]), voice("Bass", [(48, 0, 40)]),
)  # fmt: skip


def notes_of(midi: pretty_midi.PrettyMIDI, number: int) -> list[tuple[int, int, int]]:
    return [
        (note.pitch, round(note.start / SECONDS_PER_STEP), round(note.end / SECONDS_PER_STEP))
        for note in midi.instruments[number].notes
    ]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("soprano", lambda grid: grid[:, 0]),
        (" Alto, bass", lambda grid: grid[:, [1, 3]]),
        ("bars:2", lambda grid: grid[16:32]),
        ("bars:2-3", lambda grid: grid[16:]),
        ("tenor,bars:1-1", lambda grid: np.concatenate([grid[:16].ravel(), grid[16:, 2]])),
    ],
)
def test_what_is_kept(keep: str, expected: object) -> None:
    part = CHORALES.given(parsed(CHORALE), keep)
    wanted = np.zeros((40, 4), dtype=np.int64)
    mask = np.zeros((40, 4), dtype=bool)
    wanted[:] = np.arange(160).reshape(40, 4)
    mask.reshape(-1)[np.ravel(expected(wanted))] = True
    assert (part.known == mask.reshape(-1)).all()
    grid = CHORALES.from_midi(parsed(CHORALE))
    assert (CHORALES.decode(part.ids)[mask] == grid[mask]).all()


@pytest.mark.parametrize("tokenizer", [CHORALES, AttackTokenizer()], ids=["grid", "attacks"])
def test_kept_notes_come_back_as_they_were_struck(tokenizer: ChoraleTokenizer) -> None:
    part = tokenizer.given(parsed(CHORALE), "soprano,bars:2")
    random = np.random.default_rng(0).integers(0, tokenizer.vocabulary_size, 160)
    completed = part.finish(np.where(part.known, part.ids, random))
    again = pretty(completed)
    assert [part.name for part in again.instruments] == list(VOICES)
    assert notes_of(again, 0) == TUNE
    assert (55, 20, 32) in [(p, a, min(b, 32)) for p, a, b in notes_of(again, 2)], "struck at 20"
    pairs = zip(again.instruments, completed.kept, strict=True)
    kept = {(number, note.start) for number, (one, mask) in enumerate(pairs)
            for note, is_kept in zip(one.notes, mask, strict=True) if is_kept}  # fmt: skip
    assert {start for number, start in kept if number == 0} == {
        note.start for note in again.instruments[0].notes
    }
    assert all(3.2 <= start < 6.4 for number, start in kept if number)


def test_a_model_with_attacks_keeps_repeated_notes_and_strikes_its_own() -> None:
    tokenizer = AttackTokenizer()
    model = tiny_model(Chorales((16,)), length=128, overlap=64, tokenizer=tokenizer)
    for seed in range(2):
        harmony = pretty(model.complete(CHORALE, "soprano", particles=2, seed=seed)[0])
        assert notes_of(harmony, 0) == TUNE
        ids = tokenizer.encode(tokenizer.from_midi(parsed(harmony)))
        rule = HeldNotes(tokenizer.id_pitches)
        rows = torch.from_numpy(ids).unsqueeze(0)
        assert not any(rule(rows[:, :t])[0, token] for t, token in enumerate(ids))
        struck = tokenizer.onsets(ids).reshape(-1, 4)[1:, 1:]  # [T - 1, 3]
        grid = tokenizer.decode(ids)[:, 1:]
        assert (struck & (grid[1:] == grid[:-1])).any(), "a voice repeats a pitch"
        assert ((grid[1:] == grid[:-1]) & (grid[1:] != SILENT) & ~struck).any(), "or holds it"


@pytest.mark.parametrize("name", ["soprano", "bass"])
def test_a_melody_is_the_one_voice_that_is_kept(name: str) -> None:
    part = CHORALES.given(parsed(piece(voice("flute", TUNE))), name)
    column = CHORALES.decode(part.ids)[:, [v.lower() for v in VOICES].index(name)]
    assert column[[0, 4, 9, 10, 39]].tolist() == [67, 67, SILENT, 69, 71]
    assert part.known.reshape(-1, 4).sum(0).max() == 40
    assert part.known.sum() == 40


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("sopran", "'sopran'.*soprano, alto, tenor, bass"),
        ("bars:0-2", "bars:0-2"),
        ("bars:3-2", "bars:3-2"),
        ("bars:2-9", "from 1 to 3"),
        ("soprano,alto,tenor,bass", "nothing of tune.mid is left"),
        ("bars:1-3", "nothing of tune.mid is left"),
    ],
)
def test_bad_choices_are_refused(keep: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        CHORALES.given(parsed(CHORALE), keep)


def test_missing_voices_and_other_music_are_refused() -> None:
    without_alto = piece(voice("Soprano", TUNE), voice("Bass", [(48, 0, 40)]))
    with pytest.raises(UserError, match="no notes of the alto"):
        CHORALES.given(parsed(without_alto), "soprano,alto")
    with pytest.raises(UserError, match="no voices"):
        EventTokenizer().given(parsed(CHORALE), "soprano")


def test_given_tokens_are_forced_in_every_window() -> None:
    model = categorical()
    torch.manual_seed(0)
    some = Given(torch.randint(LEVELS, (3, 19)), torch.rand(3, 19) < 0.4)
    for particles in (1, 4):
        request = SampleRequest(given=some)
        found = complete_tokens(model, request, windows_of(6, 2), particles=particles)
        assert found.shape == (3, 19)
        assert torch.equal(found[some.known], some.values[some.known])
        assert not torch.equal(found[~some.known], some.values[~some.known])
