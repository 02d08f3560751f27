"""Music of several instruments: what a file becomes, what comes back, and what may be sampled."""

from __future__ import annotations

import io
import pickle
from itertools import pairwise

import mido
import numpy as np
import pretty_midi
import pytest
import torch
from pretty import midi_bytes, pretty

from triptych.domains.music.attention import find_query
from triptych.domains.music.conditions import ConstraintOptions
from triptych.domains.music.config import Augmentation
from triptych.domains.music.midi import parse_midi
from triptych.domains.music.tokenizers.instruments import DRUMS, Ensemble, program_of
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.domains.music.tokenizers.remi_grammar import Kind
from triptych.errors import UserError

QUARTET = ("violin", "violin", "viola", "cello")
BAND = ("electric bass (finger)", "trumpet", "drums")

# Program, DRUMS for drums, name of the track, and (onset, length, pitch, velocity) of its notes in
# twelfths of a quarter.
Track = tuple[int, str, list[tuple[int, int, int, int]]]
BAND_TRACKS: list[Track] = [
    (56, "melody", [(0, 12, 70, 90), (16, 4, 72, 90), (48, 40, 60, 70), (60, 12, 64, 70)]),
    (33, "", [(0, 24, 40, 80), (24, 24, 47, 80), (84, 3, 35, 80)]),
    (DRUMS, "kit", [(time, 3, 36 + time % 5, 100) for time in range(0, 96, 6)]),
]


def midi_of(tracks: list[Track], meters=((0, 4, 4),), tempos=((0, 120),)) -> bytes:
    """A MIDI file of 12 ticks a quarter, written by mido alone."""
    file = mido.MidiFile(ticks_per_beat=12)
    head = [
        (tick, mido.MetaMessage("time_signature", numerator=count, denominator=unit))
        for tick, count, unit in meters
    ] + [(tick, mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(bpm))) for tick, bpm in tempos]
    rows = [head]
    for number, (program, name, notes) in enumerate(tracks):
        channel = 9 if program == DRUMS else number
        row = [(0, mido.MetaMessage("track_name", name=name))]
        if program != DRUMS:
            row.append((0, mido.Message("program_change", channel=channel, program=program)))
        for onset, length, pitch, velocity in notes:
            row.append((onset, mido.Message("note_on", channel=channel, note=pitch,
                                            velocity=velocity)))  # fmt: skip
            row.append((onset + length, mido.Message("note_off", channel=channel, note=pitch)))
        rows.append(row)
    for row in rows:
        row.sort(key=lambda item: (item[0], item[1].type == "note_on"))
        ticks = [0, *(tick for tick, _ in row)]
        deltas = [after - before for before, after in pairwise(ticks)]
        file.tracks.append(
            mido.MidiTrack(
                message.copy(time=delta) for (_, message), delta in zip(row, deltas, strict=True)
            )
        )
    buffer = io.BytesIO()
    file.save(file=buffer)
    return buffer.getvalue()


def band(tokenizer: RemiTokenizer, **music) -> np.ndarray:
    """The ids of the band's music."""
    return tokenizer.from_midi(parse_midi(midi_of(BAND_TRACKS, **music), name="x"))


def notes_of(midi: pretty_midi.PrettyMIDI) -> dict[str, list[tuple[float, float, int]]]:
    """Onset and length in quarters at 120 per minute, and pitch, by instrument."""
    return {
        part.name: sorted(
            (round(2 * n.start, 4), round(2 * (n.end - n.start), 4), n.pitch) for n in part.notes
        )
        for part in midi.instruments
    }


def words(tokenizer: RemiTokenizer, ids) -> list[str]:
    return [tokenizer.symbols[token] for token in ids]


def test_a_file_as_tokens():
    """Bar, meter, position and tempo, then instruments in their order, drums with own pitches."""
    tokenizer = RemiTokenizer(BAND)
    ids = band(tokenizer, meters=[(0, 3, 4)])
    found = words(tokenizer, ids)
    assert found[:4] == ["Bar", "TimeSig_3/4", "Position_0", "Tempo_120"]
    assert found[4:14] == [
        "Program_electric bass (finger)", "Pitch_40", "Duration_24",
        "Program_trumpet", "Pitch_70", "Duration_12",
        "Program_drums", "PitchDrum_36", "Duration_3", "Position_6",
    ]  # fmt: skip
    assert found.count("Bar") == 3
    assert tokenizer.id_pitches[ids].tolist().count(40) == 1
    assert set(tokenizer.id_pitches[ids].tolist()) == {-1, 40, 47, 35, 70, 72, 60, 64}  # no drums
    assert tokenizer.onsets(ids).sum() == 4 + 3 + 16


def test_tracks_programs_and_drums_come_back(instrument_roundtrip):
    tokenizer = RemiTokenizer(BAND, velocities=4)
    midi = parse_midi(midi_of(BAND_TRACKS), name="x")
    music = pretty(tokenizer.to_score(tokenizer.from_midi(midi)))
    again = pretty_midi.PrettyMIDI(io.BytesIO(midi_bytes(music)))
    assert [(part.program, part.is_drum) for part in again.instruments] == [
        (33, False), (56, False), (0, True),
    ]  # fmt: skip
    # Any tempo is a little off: onsets are compared in quarters.
    trip = instrument_roundtrip.round_trip(tokenizer, midi)
    assert trip.before == trip.after == len(trip.shifts) == 23
    assert max(trip.shifts + trip.changes) < instrument_roundtrip.EQUAL


def test_two_instruments_of_one_program_stay_apart():
    tracks: list[Track] = [
        (40, "", [(0, 12, 76, 80), (12, 12, 74, 80)]),
        (40, "", [(0, 24, 76, 80)]),
        (42, "", [(0, 48, 48, 80)]),
    ]
    tokenizer = RemiTokenizer(QUARTET, tempos=False)
    music = pretty(tokenizer.to_score(tokenizer.from_midi(parse_midi(midi_of(tracks), name="x"))))
    assert [part.program for part in music.instruments] == [40, 40, 42]
    assert notes_of(music) == {
        "violin": [(0, 1, 76), (1, 1, 74)], "violin 2": [(0, 2, 76)], "cello": [(0, 4, 48)],
    }  # fmt: skip
    # The names that were written tell the second violin, also where the first one rests.
    music.instruments = music.instruments[1:]
    again = pretty(tokenizer.to_score(tokenizer.from_midi(parse_midi(midi_bytes(music), name="x"))))
    assert [part.name for part in again.instruments] == ["violin 2", "cello"]


def test_other_instruments_are_left_out():
    tokenizer = RemiTokenizer(("trumpet",))
    midi = parse_midi(midi_of(BAND_TRACKS), name="band.mid")
    assert [
        part.program for part in pretty(tokenizer.to_score(tokenizer.from_midi(midi))).instruments
    ] == [56]
    with pytest.raises(UserError, match=r"band.mid.*harp"):
        RemiTokenizer(("orchestral harp",)).from_midi(midi)


def test_times_of_tokens_are_those_of_the_music():
    """The vectorised reading of ids against the music that is made of them."""
    meters = [(0, 3, 4), (36, 6, 8), (72, 4, 4)]
    tokenizer = RemiTokenizer()
    ids = band(tokenizer, meters=meters, tempos=[(0, 60), (24, 200), (78, 90)])
    seconds, pitches = tokenizer.seconds(ids), tokenizer.pitches(ids)
    played = sorted(
        (note.start, note.pitch)
        for part in pretty(tokenizer.to_score(ids)).instruments
        for note in part.notes
        if not part.is_drum
    )
    notes = tokenizer.onsets(ids) & (pitches >= 0)
    read = sorted(zip(seconds[notes].tolist(), pitches[notes].tolist(), strict=True))
    np.testing.assert_allclose(read, played, atol=1e-4)


def test_all_tokens_of_a_note_have_its_pitch_and_time():
    """So that a picture of attention finds the note of a duration; drums have no pitch."""
    tokenizer = RemiTokenizer(BAND, velocities=4)
    ids = band(tokenizer)
    seconds, pitches = tokenizer.seconds(ids), tokenizer.pitches(ids)
    names = [tokenizer.symbols[index].partition("_") for index in ids]
    note = -1
    for index, (kind, _, value) in enumerate(names):
        if kind in ("Pitch", "PitchDrum"):
            note = int(value) if kind == "Pitch" else -1
            time = seconds[index]
        if kind in ("Pitch", "PitchDrum", "Velocity", "Duration"):
            assert (pitches[index], seconds[index]) == (note, time)
        else:
            assert pitches[index] == -1
    assert (pitches >= 0).sum() == 3 * sum(kind == "Pitch" for kind, _, _ in names)


def test_transposition_leaves_drums_alone():
    tokenizer = RemiTokenizer(BAND)
    ids = band(tokenizer)
    up = tokenizer.transpose(ids, 3)
    before, after = (
        pretty(tokenizer.to_score(ids)).instruments,
        pretty(tokenizer.to_score(up)).instruments,
    )
    for old, new in zip(before, after, strict=True):
        shift = 0 if old.is_drum else 3
        assert [note.pitch + shift for note in old.notes] == [note.pitch for note in new.notes]
    pitches = tokenizer.id_pitches[ids]
    assert Augmentation(transpose=2).shifts(pitches[pitches >= 0], *tokenizer.pitch_range)


def test_attention_is_drawn_for_notes_of_a_pitch():
    """The last note of the band is a drum's."""
    tokenizer = RemiTokenizer(BAND)
    ids = band(tokenizer)
    seconds, pitches = tokenizer.seconds(ids), tokenizer.pitches(ids)
    assert tokenizer.onsets(ids).nonzero()[0][-1] > find_query(tokenizer, ids, None)
    assert pitches[find_query(tokenizer, ids, None)] == 35
    assert pitches[find_query(tokenizer, ids, seconds[-1] / 2)] >= 0


def test_any_ids_are_music():
    tokenizer = RemiTokenizer(BAND)
    draws = np.random.default_rng(0).integers(0, tokenizer.vocabulary_size, (20, 300))
    for ids in draws:
        midi_bytes(tokenizer.to_score(ids))
        assert tokenizer.seconds(ids).shape == (300,)


def sample(tokenizer, *, rows, length, seed, seconds=None, prompt=None, rules=()):
    """Tokens that the grammar allows, those that end a bar or a piece less often."""
    prompt = np.zeros(0, dtype=np.int64) if prompt is None else prompt
    rules = [tokenizer.grammar(rows, seconds=seconds, n_prompt=len(prompt)), *rules]
    values = torch.from_numpy(prompt).expand(rows, -1)
    generator = torch.Generator().manual_seed(seed)
    likely = torch.ones(tokenizer.vocabulary_size)
    likely[tokenizer.end] = 0.01
    for _ in range(length):
        forbidden = torch.stack([rule(values) for rule in rules]).any(0)
        assert not forbidden.all(1).any()
        drawn = torch.multinomial(likely * ~forbidden, 1, generator=generator)
        values = torch.cat([values, drawn], dim=1)
    return values.numpy()


def upto_last_note(tokenizer, ids):
    ids = ids[np.cumsum(ids == tokenizer.end) == 0]
    notes = np.flatnonzero(tokenizer.meaning.kind[ids] == Kind.Duration)
    return ids[: notes[-1] + 1] if len(notes) else ids[:0]


@pytest.mark.parametrize("velocities", [0, 3])
@pytest.mark.parametrize("tempos", [False, True])
def test_sampled_tokens_are_those_of_the_sampled_music(velocities, tempos):
    """Written as a file and encoded again; durations aside, which overlapping notes shorten."""
    tokenizer = RemiTokenizer((*QUARTET, "drums"), velocities=velocities, tempos=tempos)
    rows = sample(tokenizer, rows=6, length=200, seed=1)
    for ids in rows:
        ids = upto_last_note(tokenizer, ids)
        again = tokenizer.from_midi(parse_midi(midi_bytes(tokenizer.to_score(ids)), name="x"))
        timed = tokenizer.meaning.kind[ids] != Kind.Duration
        assert words(tokenizer, again[timed]) == words(tokenizer, ids[timed])


CHORDS = [(program, "", [(12 * beat, 12, pitch, 90) for beat in (0, 1) for pitch in (60, 64, 67)])
          for program in (40, 42, DRUMS)]  # fmt: skip


@pytest.mark.parametrize("tracks", [BAND_TRACKS, CHORDS])
def test_what_is_encoded_is_allowed(tracks):
    """A model that learned the data is never forced away from it."""
    tokenizer = RemiTokenizer()
    music = {"meters": [(0, 1, 4), (12, 6, 8), (48, 4, 4)], "tempos": [(0, 60), (48, 90)]}
    score = parse_midi(midi_of(tracks, **music), name="x")
    ids = tokenizer.tokens(tokenizer.from_midi(score))
    grammar = tokenizer.grammar(1, seconds=None, n_prompt=0)
    for place in range(len(ids)):
        forbidden = grammar(torch.from_numpy(ids[None, :place]))
        assert not forbidden[0, ids[place]], words(tokenizer, ids[: place + 1])[-6:]


def test_the_chosen_instruments_alone_play():
    tokenizer = RemiTokenizer((*QUARTET, "drums"))
    for chosen, programs in (
        ("violin,viola", {0, 2}), ("40, 40,41,42", {0, 1, 2, 3}), ("violin 2,drums", {1, 4}),
    ):  # fmt: skip
        rules = tokenizer.constraints(ConstraintOptions(instruments=chosen))
        rows = sample(tokenizer, rows=4, length=150, seed=2, rules=rules)
        kinds, numbers = tokenizer.meaning.kind[rows], tokenizer.meaning.number[rows]
        assert set(numbers[kinds == Kind.Program].tolist()) == programs


def test_sampling_ends_with_the_seconds():
    tokenizer = RemiTokenizer(BAND)
    prompt = band(tokenizer)
    until = tokenizer.seconds(prompt)[-1]
    last = []
    for ids in sample(tokenizer, rows=4, length=300, seed=3, seconds=3.0, prompt=prompt):
        assert (ids[: len(prompt)] == prompt).all()
        assert ids[-1] == tokenizer.end
        new = tokenizer.meaning.kind[ids[len(prompt) :]]
        assert not ((new[:-1] == Kind.TimeSig) & (new[1:] == Kind.Bar)).any(), "no empty bar"
        last.append(tokenizer.seconds(upto_last_note(tokenizer, ids))[-1])
    assert until < max(last) < until + 3.0


@pytest.mark.parametrize(
    ("name", "program"), [("Violin", 40), ("42", 42), (" drums", DRUMS), ("FX 2 (soundtrack)", 97)]
)
def test_instruments_by_name_and_number(name, program):
    assert program_of(name) == program


@pytest.mark.parametrize(
    ("instruments", "named"),
    [
        (("violon",), "did you mean"), (("128",), "128"), (("drums", "drums"), "once"),
        (("",), "names of General MIDI"),
    ],
)  # fmt: skip
def test_unknown_instruments(instruments, named):
    with pytest.raises(ValueError, match=named):
        RemiTokenizer(instruments)


@pytest.mark.parametrize(
    "chosen", ["flute", "violon", "violin,violin,violin", "cello 2", "viola,41"]
)
def test_instruments_that_the_model_does_not_play(chosen):
    with pytest.raises(UserError, match=r"^instruments has"):
        RemiTokenizer(QUARTET).constraints(ConstraintOptions(instruments=chosen))


def test_names_of_an_ensemble():
    ensemble = Ensemble.of(["violin", "40", "drums"])
    assert ensemble.names == ("violin", "violin 2", "drums")
    assert ensemble.choose(["violin 2", "violin"]) == [1, 0]


def test_a_used_tokenizer_goes_to_other_processes():
    tokenizer = RemiTokenizer(BAND)
    symbols = tokenizer.symbols
    assert pickle.loads(pickle.dumps(tokenizer)).symbols == symbols


@pytest.mark.parametrize(
    ("instruments", "program"), [(None, 0), (QUARTET, 40), (BAND, 33), (("drums",), 0)]
)
def test_a_melody_is_of_an_instrument_that_plays(
    instruments: tuple[str, ...] | None, program: int
) -> None:
    assert RemiTokenizer(instruments).melody_program == program


def test_ids_without_notes_are_a_piece_without_notes() -> None:
    tokenizer = RemiTokenizer(QUARTET)
    tempo, other, *_ = (name for name in tokenizer.symbols if name.startswith("Tempo"))
    bar = ["Bar", "TimeSig_6/4", "Position_0", tempo, "Position_38", other]
    names = [*bar, "Bar", "TimeSig_12/8", "Position_61", "EOS"]
    ids = np.array([tokenizer.symbols.index(name) for name in names])
    assert pretty(tokenizer.to_score(ids)).instruments == []


@pytest.mark.parametrize("between", ["Bar", "Position_0", "Program_violin"])
def test_a_pitch_and_a_duration_apart_are_no_note(between: str) -> None:
    tokenizer = RemiTokenizer(("violin",))
    names = ["Bar", "TimeSig_4/4", "Position_0", "Program_violin", "Pitch_60", between]
    names += ["Position_0", "Program_violin"] * (between == "Bar")
    duration = next(name for name in tokenizer.symbols if name.startswith("Duration"))
    ids = np.array([tokenizer.id_of[name] for name in [*names, duration]])
    assert not len(tokenizer.to_score(ids).notes)
