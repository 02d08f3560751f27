"""What is made for a given file has its tempos, meter, key, parts and notes."""

from __future__ import annotations

import io
from dataclasses import replace

import mido
import numpy as np
import pytest
from pretty import midi_bytes
from tiny_music import Chorales, Performances, tiny_model
from tiny_scores import Line, quarters, score_of

from triptych.domains.music.conditions import FrameOptions, chords_at, signature_of
from triptych.domains.music.frame import chosen_cells, cut, octaves_into, put_into, transpose
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.midi import midi_file, parse_midi
from triptych.domains.music.notes import Score
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.domains.music.tokenizers.voices import read_voices
from triptych.errors import UserError

JIG: Line = [(0, 0.5, 66), (0.5, 1.5, 69), (1.5, 2, 71), (2, 3.5, 69), (3.5, 5, 66), (5, 6.5, 62)]
"""Of 6/8 bars after a pickup of an eighth."""
JIG_SCORE = score_of(
    [("Fiddle", 40, JIG)], meters=((0, 1, 8), (0.5, 6, 8)), tempo=84, key=(2, False)
)
CHOIR = tiny_model(Chorales(), length=128, overlap=64)
PIANIST = tiny_model(Performances(), length=120, overlap=40)


def same_frame(made: Score, given: Score) -> bool:
    """Whether a written and read piece has the tempos, meters and keys of another one."""
    again = parse_midi(midi_bytes(made), name="again")
    unit = again.ticks_per_quarter / given.ticks_per_quarter
    names = ("tempos", "time_signatures", "key_signatures")
    return all(
        [(at / unit, *what) for at, *what in getattr(again, name)]
        == [(at, *what) for at, *what in getattr(given, name)]
        for name in names
    )


def test_bars_are_those_of_the_file() -> None:
    assert (JIG_SCORE.bars() / 480).tolist() == [0, 0.5, 3.5, 6.5]
    off = score_of([("", 0, [(0, 9, 60)])], meters=((0, 3, 4), (4, 2, 4)))
    assert (off.bars() / 480).tolist() == [0, 3, 4, 6, 8, 10]


def test_a_jig_is_harmonised_in_its_frame() -> None:
    made = CHOIR.complete(JIG_SCORE, "soprano", particles=2)[0]
    assert same_frame(made.score, JIG_SCORE)
    assert quarters(made.score, 0) == list(JIG)
    assert made.score.parts[0].name == "Fiddle"
    assert set(made.score.notes.program[made.score.notes.part == 0].tolist()) == {40}
    assert not made.is_new[made.score.notes.part == 0].any()
    alone = made.only_new()
    assert [part.name for part in alone.score.parts] == ["Alto", "Tenor", "Bass"]


def test_bars_of_the_file_are_kept() -> None:
    made = CHOIR.complete(JIG_SCORE, "bars:2", particles=2)[0]
    kept = made.score.notes[~made.is_new]
    assert (kept.onset / 480).tolist() == [0.5, 1.5, 2]
    assert made.score.bars().tolist() == JIG_SCORE.bars().tolist()


@pytest.mark.parametrize("model", [CHOIR, PIANIST])
def test_a_primer_comes_back_and_new_notes_begin_after_it(model: MusicModel) -> None:
    hymn = score_of(
        [("Oboe", 68, [(0, 1, 67), (1, 2, 67), (2, 3, 67), (3, 4, 69)])],
        meters=((0, 3, 4),), tempo=96, key=(-1, True),
    )  # fmt: skip
    hymn = replace(hymn, last_tick=6 * 480)  # a rest that fills its second bar
    for seed in (1, 2):
        made = model.sample(1, primer=hymn, seconds=2.0, seed=seed)[0]
        assert same_frame(made.score, hymn)
        old, new = made.score.notes[~made.is_new], made.score.notes[made.is_new]
        assert old.onset.tolist() == hymn.notes.onset.tolist()
        assert old.release.tolist() == hymn.notes.release.tolist()
        assert set(old.program.tolist()) == {68}
        assert new.onset.min() >= 6 * 480
        assert made.score.seconds([made.score.last_tick])[0] <= hymn.duration + 2.0 + 1e-3


def test_a_primer_is_cut_to_its_first_bars() -> None:
    made = CHOIR.sample(1, primer=JIG_SCORE, primer_bars=2, length=8)[0]
    old, new = made.score.notes[~made.is_new], made.score.notes[made.is_new]
    assert old.pitch.tolist() == [66, 69, 71, 69]
    assert old.release.max() == new.onset.min() == 3.5 * 480


def test_a_new_piece_has_the_asked_frame() -> None:
    frame = FrameOptions(bars=3, tempo=72, meter="3/4")
    for model in (CHOIR, PIANIST):
        made = model.sample(1, frame=frame)[0]
        assert [round(60e6 / tempo) for _, tempo in made.score.tempos] == [72]
        assert made.score.time_signatures == [(0, 3, 4)]
        assert made.score.last_tick <= 9 * made.score.ticks_per_quarter
    assert CHOIR.sample(1, frame=frame)[0].score.notes.release.max() == 9 * 480
    with pytest.raises(UserError, match=r"chords cannot.*bars, tempo, meter"):
        CHOIR.sample(1, frame=FrameOptions(chords="C G"))


def test_no_channel_has_two_programs() -> None:
    band = score_of([(f"part {n}", 8 * n % 128, [(0, 1, 60)]) for n in range(20)])
    programs: dict[tuple[int, int], set[int]] = {}
    for track in midi_file(band).tracks[1:]:
        port = next((m.port for m in track if m.type == "midi_port"), 0)
        for message in track:
            if message.type == "program_change":
                programs.setdefault((port, message.channel), set()).add(message.program)
    assert max(map(len, programs.values())) == 1
    assert 9 not in {channel for _, channel in programs}
    again = parse_midi(midi_bytes(band), name="again")
    assert again.notes.program.tolist() == band.notes.program.tolist()


SATB = [("Bass", 48), ("S", 72), ("Alto 1", 65), ("Ténor / Tenor", 57), ("Piano", 60)]


def test_names_decide_before_height() -> None:
    """The bass sings above the others; the piano is no voice."""
    parts = [(name, 52, [(0, 2, pitch + 30 * (name == "Bass"))]) for name, pitch in SATB]
    score = score_of(parts)
    sung = read_voices(score).sung
    assert score.notes.pitch[sung].tolist() == [[72, 65, 57, 78]] * 8


def test_two_staves_have_two_voices_each() -> None:
    """Alto and tenor cross; in the last quarter the women sing in unison."""
    upper = [(0, 1, 72), (0, 1, 60), (1, 2, 71), (1, 2, 62), (2, 3, 67)]
    lower = [(0, 1, 64), (0, 1, 48), (1, 2, 62), (1, 2, 50), (2, 3, 60), (2, 3, 52)]
    score = score_of([("", 0, lower), ("", 0, upper)])
    sung = read_voices(score).sung[::4]
    assert score.notes.pitch[sung].tolist() == [
        [72, 60, 64, 48], [71, 62, 62, 50], [67, 67, 60, 52],
    ]  # fmt: skip


def test_ornaments_and_legato_do_not_move_the_beat() -> None:
    tune: Line = [(0, 1.1, 67), (1, 2.12, 69), (1.95, 2, 74), (2, 3, 72), (3.06, 4, 71)]
    score = score_of([("Flute", 73, tune)])
    sung = read_voices(score).sung[:, 0]
    pitches = np.where(sung < 0, -1, score.notes.pitch[sung]).tolist()
    assert pitches == [67] * 4 + [69] * 4 + [72] * 4 + [71] * 4


def test_the_melody_is_found_by_name_and_can_be_named() -> None:
    chords: Line = [(0, 4, 60), (0, 4, 64), (0, 4, 79)]
    song = score_of([("Piano", 0, chords), ("Lead Vocal", 53, [(0, 2, 65), (2, 4, 67)])])
    assert song.notes.pitch[read_voices(song).sung[:, 0]].tolist() == [65] * 8 + [67] * 8
    made = CHOIR.complete(song, "soprano", particles=2, melody_track="1")[0]
    assert 79 in made.score.notes[~made.is_new].pitch
    with pytest.raises(UserError, match=r"no track 'oboe'.*1 'Piano', 2 'Lead Vocal'"):
        CHOIR.complete(song, "soprano", melody_track="oboe")


def test_a_melody_outside_the_range_is_offered_an_octave() -> None:
    piccolo = score_of([("", 72, [(0, 1, 88), (1, 2, 91)])])
    with pytest.raises(UserError, match=r"pitch 91.*--transpose -12"):
        CHOIR.complete(piccolo, "soprano")
    assert octaves_into(88, 91, 36, 81) == -12
    made = CHOIR.complete(piccolo, "soprano", transpose="auto", particles=2)[0]
    assert made.score.notes[~made.is_new].pitch.tolist() == [76, 79]
    with pytest.raises(UserError, match="no MIDI pitches"):
        transpose(piccolo, 60)


def test_which_cells_are_made_anew() -> None:
    bars, names = np.array([0, 4, 8, 12]), ["Piano", "Drums"]

    def cells(keep: str | None, fill: str | None) -> list[list[int]]:
        return chosen_cells(bars, names, keep, fill, "x").astype(int).tolist()

    assert cells("bars:1-2", None) == [[0, 0], [0, 0], [1, 1]]
    assert cells("track:drums,bars:1", None) == [[0, 0], [1, 0], [1, 0]]
    assert cells(None, "bars:2") == [[0, 0], [1, 1], [0, 0]]
    assert cells(None, "track:2") == [[0, 1], [0, 1], [0, 1]]
    assert cells(None, "bars:2-3,Drums") == [[0, 0], [0, 1], [0, 1]]
    for wrong in ("bars:4", "flute", "bars:1-3,piano,drums"):
        with pytest.raises(UserError):
            chosen_cells(bars, names, wrong, None, "x")


def test_conditions_are_read() -> None:
    assert signature_of("Bb:minor") == (-5, True)
    assert signature_of("F#:major") == (6, False)
    assert signature_of("G#:major") == (-4, False)  # as A flat
    assert chords_at("C G", [0, 4, 8, 12]) == [(0, "C"), (4, "G"), (8, "C")]
    assert chords_at("C:maj G7 | Am", [0, 4, 8]) == [(0, "C:maj"), (2, "G7"), (4, "Am")]
    for wrong in ({"meter": "3/5"}, {"key": "H:major"}, {"chords": "C Hm"}, {"chords": " "}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            FrameOptions(**wrong)


def test_a_piece_is_cut_with_its_frame() -> None:
    part = cut(JIG_SCORE, 480)
    assert (part.notes.release / 480).tolist() == [0.5, 1]
    assert part.time_signatures == JIG_SCORE.time_signatures
    assert part.last_tick == 480


@pytest.mark.parametrize("meter", [(5, 4), (7, 8), (12, 16), (2, 2), (33, 4), (9, 32)])
def test_all_meters_come_back(meter: tuple[int, int]) -> None:
    """As they are, or as bars of their length; no note moves."""
    line = [(n, n + 1, 60 + n % 5) for n in range(36)]
    score = score_of([("", 0, line)], meters=((0, *meter),), tempo=132)
    tokenizer = RemiTokenizer()
    again = tokenizer.to_score(tokenizer.from_midi(score))
    assert quarters(again, 0) == line
    assert [tempo for _, tempo in again.tempos] == [round(60e6 / 132)]
    if meter[0] < 13 and meter[1] < 32:
        assert again.time_signatures == [(0, *meter)]


def test_a_new_note_does_not_end_a_kept_one_of_its_pitch() -> None:
    held = score_of([("Piano", 0, [(0, 6, 60), (0, 1, 64)])])
    new = score_of([("Piano", 0, [(4, 5, 60), (4, 5, 67), (6, 7, 60)])])
    made = put_into(held, np.ones(2, dtype=bool), new, {"Piano": 0})
    assert quarters(made.score, 0) == [(0, 1, 64), (0, 6, 60), (4, 5, 67), (6, 7, 60)]
    assert made.is_new.tolist() == [False, False, True, True]


def test_keys_and_chords_are_transposed_with_the_notes() -> None:
    song = replace(JIG_SCORE, chords=[(0, "D:maj"), (240, "Gm7"), (480, "Bridge")])
    up = transpose(song, 3)
    assert up.key_signatures == [(0, -1, False)]  # D major with two sharps, then F major
    assert up.chords == [(0, "F:maj"), (240, "Bb:min7"), (480, "Bridge")]
    assert (up.notes.pitch - song.notes.pitch == 3).all()
    assert transpose(song, -12).key_signatures == song.key_signatures


def test_lyrics_controllers_bends_and_kits_come_back() -> None:
    """Bends of notes that are made anew do not, since they would put new notes out of tune."""
    file = mido.MidiFile(ticks_per_beat=480)
    lead, kit = file.add_track("Lead"), file.add_track("Kit")
    lead.append(mido.Message("control_change", control=7, value=90))
    lead.append(mido.Message("control_change", control=10, value=20))
    for beat in range(32):
        lead.append(mido.MetaMessage("lyrics", text=f"la{beat} "))
        lead.append(mido.Message("note_on", note=62 + beat % 8, velocity=80))
        lead.append(mido.Message("pitchwheel", pitch=1000, time=100))
        lead.append(mido.Message("pitchwheel", pitch=0, time=200))
        lead.append(mido.Message("note_off", note=62 + beat % 8, time=180))
    kit.append(mido.Message("program_change", channel=9, program=25))
    kit.append(mido.Message("note_on", channel=9, note=36, velocity=90))
    kit.append(mido.Message("note_off", channel=9, note=36, time=480))
    buffer = io.BytesIO()
    file.save(file=buffer)
    score = parse_midi(buffer.getvalue(), name="a song")
    assert score.lyrics[:2] == [(0, "la0 "), (480, "la1 ")]
    assert score.parts[0].messages[:2] == [(0, b"\xb0\x07\x5a"), (0, b"\xb0\x0a\x14")]
    assert score.parts[1].messages == [(0, b"\xc0\x19")]
    again = parse_midi(midi_bytes(score), name="a song")
    assert (again.parts, again.lyrics) == (score.parts, score.lyrics)

    tokenizer = ChoraleTokenizer()
    piece = tokenizer.given(score, "bars:1-4")
    made = piece.finish(np.where(piece.known, piece.ids, 30)).score
    lead_made = next(part for part in made.parts if part.name == "Lead")
    bends = [tick for tick, message in lead_made.messages if message[0] == 0xE0]
    assert len(bends) == 32
    assert max(bends) < 16 * 480
    assert len(lead_made.messages) == 34
    assert made.lyrics == score.lyrics
    assert cut(score, 480).parts[0].messages == score.parts[0].messages[:4]
