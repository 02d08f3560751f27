import contextlib
import io
import random

import mido
import pretty_midi
import pytest
from pretty import midi_bytes, write_midi

from triptych.domains.music import midi as midi_files
from triptych.domains.music.midi import parse_midi, read_midi
from triptych.domains.music.notes import Score, performance
from triptych.errors import UserError


def on(pitch=60, velocity=64, channel=0):
    return mido.Message("note_on", note=pitch, velocity=velocity, channel=channel)


def off(pitch=60, channel=0):
    return mido.Message("note_off", note=pitch, channel=channel)


def spans(midi):
    notes = midi.notes_in_seconds
    columns = (notes.pitch, notes.onset.round(6), notes.release.round(6), notes.velocity)
    return sorted(zip(*columns, strict=True))


def test_a_written_file_has_a_tempo_event_and_ticks_of_a_millisecond(make_piano, tmp_path):
    path = write_midi(make_piano([(60, 0.013, 0.501, 70)]), tmp_path / "a.mid")
    raw = mido.MidiFile(path)
    tempos = [
        message.tempo for track in raw.tracks for message in track if message.type == "set_tempo"
    ]
    assert raw.ticks_per_beat == 500
    assert tempos == [500_000]
    assert spans(read_midi(path)) == [(60, 0.013, 0.501, 70)]


def test_ten_milliseconds_survive_writing(make_piano):
    rows = [(60, step / 100, (step + 1) / 100, 64) for step in range(0, 3000, 7)]
    assert spans(parse_midi(midi_bytes(make_piano(rows)), name="x")) == sorted(rows)


def test_the_tempo_map_counts_even_outside_the_first_track(raw_midi):
    tempo = mido.MetaMessage("set_tempo", tempo=1_000_000)
    content = raw_midi(
        [(0, mido.MetaMessage("track_name", name="x"))],
        [(0, tempo), (0, on()), (500, off()), (500, on(62)), (1000, off(62))],
    )
    assert spans(parse_midi(content, name="x")) == [(60, 0, 1, 64), (62, 1, 2, 64)]


def test_every_change_of_tempo_counts_wherever_it_stands(raw_midi):
    """The changes of all tracks are one map, by their ticks and not by their tracks."""

    def tempo(microseconds):
        return mido.MetaMessage("set_tempo", tempo=microseconds)

    notes = [(tick, message) for t in range(0, 2500, 500) for tick, message in (
        (t, on(60 + t // 500)), (t + 500, off(60 + t // 500)))]  # fmt: skip
    content = raw_midi(
        [(0, mido.MetaMessage("track_name", name="x")), (1500, tempo(250_000))],
        [*notes[:4], (1000, tempo(1_000_000)), *notes[4:]],
        [(500, tempo(2_000_000)), (2000, tempo(500_000))],
    )
    # Quarters of 0.5 s (MIDI's default), 2 s, 1 s, 0.25 s and 0.5 s.
    assert spans(parse_midi(content, name="x")) == [
        (60, 0, 0.5, 64), (61, 0.5, 2.5, 64), (62, 2.5, 3.5, 64),
        (63, 3.5, 3.75, 64), (64, 3.75, 4.25, 64),
    ]  # fmt: skip


def test_the_cap_on_the_end_follows_the_tempo_map(raw_midi):
    """10,000 quarters: 5,000 s by the default tempo, 10,000 s by the one that comes later."""
    slow = mido.MetaMessage("set_tempo", tempo=1_000_000)
    content = raw_midi([(0, on()), (10_000 * 500, off())], [(1, slow)])
    with pytest.raises(UserError, match="claims to last 10,000 s"):
        parse_midi(content, name="x")


STRUCK = [(t, m) for s in (1000, 2000, 3000) for t, m in ((s, on()), (s + 100, off()))]
LATE_END = (2**27, mido.MetaMessage("end_of_track"))


@pytest.mark.parametrize(
    ("track", "expected"),
    [
        pytest.param([(0, on()), (500, on(velocity=0))], [(60, 0, 0.5, 64)], id="velocity 0"),
        pytest.param([(0, on(50)), (0, on()), (2000, off())], [(50, 0, 2, 64), (60, 0, 2, 64)],
                     id="an open note ends with the piece"),
        pytest.param([(0, on()), (500, on(velocity=90)), (1000, off()), (1500, off())],
                     [(60, 0, 0.5, 64), (60, 0.5, 1.5, 90)], id="overlapping notes of a pitch"),
        pytest.param([(0, on()), *STRUCK], [(60, 0, 1, 64), (60, 1, 1.1, 64), (60, 2, 2.1, 64),
                     (60, 3, 3.1, 64)], id="a lost release damages one note"),
        pytest.param([(0, on()), (500, on(velocity=99)), (500, off()), (900, off())],
                     [(60, 0, 0.5, 64), (60, 0.5, 0.9, 99)], id="a repeated key in one tick"),
        pytest.param([(0, on()), (500, off()), LATE_END], [(60, 0, 0.5, 64)], id="a late end"),
    ],
)  # fmt: skip
def test_notes_of_a_track(raw_midi, track, expected):
    assert spans(parse_midi(raw_midi(track, ticks=500), name="x")) == expected


def test_a_note_without_length_is_kept(raw_midi):
    content = raw_midi([(0, on()), (0, off()), (500, on(62)), (700, off(62))])
    assert [row[0] for row in spans(parse_midi(content, name="x"))] == [60, 62]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello, I am no MIDI file", "not a MIDI file"),
        (b"MThd\x00\x00\x00\x06\x00\x01\x00\x01\x00\x00", "not a MIDI file"),
        (b"x" * (midi_files.MAX_BYTES + 1), "bytes"),
    ],
)
def test_what_is_no_midi_file_is_told_by_name(tmp_path, content, words):
    path = tmp_path / "broken.mid"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as raised:
        read_midi(path)
    assert "broken.mid" in str(raised.value)


def test_a_file_without_notes_is_told(raw_midi):
    with pytest.raises(UserError, match="no notes"):
        parse_midi(raw_midi([(100, mido.Message("program_change", program=1))]), name="x")


def test_a_missing_file_and_a_folder_are_told(tmp_path):
    with pytest.raises(UserError, match=r"gone\.mid"):
        read_midi(tmp_path / "gone.mid")
    with pytest.raises(UserError, match="directory"):
        read_midi(tmp_path)


def test_no_damage_gives_anything_but_a_user_error(make_piano):
    content = bytearray(
        midi_bytes(make_piano([(p, p / 10, p / 10 + 1, 64) for p in range(40, 80)]))
    )
    chance = random.Random(0)
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        damaged = damaged[: chance.randrange(1, len(damaged) + 1)]
        # Any other exception than UserError goes through, and the test is red.
        with contextlib.suppress(UserError):
            assert isinstance(parse_midi(bytes(damaged), name="x"), Score)


def test_pretty_midi_reads_what_is_written(make_piano):
    content = midi_bytes(make_piano([(60, 0, 1, 64)]))
    (part,) = pretty_midi.PrettyMIDI(io.BytesIO(content)).instruments
    assert [(n.pitch, n.start, n.end, n.velocity) for n in part.notes] == [(60, 0, 1, 64)]


def pedal(value, channel=0):
    return mido.Message("control_change", control=64, value=value, channel=channel)


def sounding(content):
    """Pitch and release of each note, pedal applied."""
    notes = performance(parse_midi(content, name="x"))
    return dict(zip(notes.pitch.tolist(), notes.release.round(6).tolist(), strict=True))


def test_a_pedal_holds_the_notes_of_all_tracks_of_its_channel(raw_midi):
    right = [(0, on(70)), (500, off(70))]
    left = [(0, on(40)), (100, pedal(127)), (500, off(40)), (2000, pedal(0))]
    alone = [(100, pedal(127)), (2000, pedal(0))]
    assert sounding(raw_midi(right, left)) == {70: 2, 40: 2}
    assert sounding(raw_midi(right, alone)) == {70: 2}
    assert sounding(raw_midi(alone, right)) == {70: 2}
    other = [(100, pedal(127, channel=1)), (2000, pedal(0, channel=1))]
    assert sounding(raw_midi(right, other)) == {70: 0.5}
    port = [(0, mido.MetaMessage("midi_port", port=1)), *alone]
    assert sounding(raw_midi(right, port)) == {70: 0.5}
    assert sounding(raw_midi(port, [port[0], *right])) == {70: 2}


def test_two_tracks_that_move_one_pedal_are_one_pedal(raw_midi):
    right = [(0, on(70)), (100, pedal(127)), (500, off(70)), (1000, pedal(0))]
    left = [(0, on(40)), (1500, pedal(127)), (1600, off(40)), (2000, pedal(0))]
    assert sounding(raw_midi(right, left)) == {70: 1, 40: 2}


def test_a_note_has_the_program_in_force_at_its_onset() -> None:
    """From the track itself, or from another track where its own has no program change."""
    tracks = [
        [
            mido.Message("program_change", channel=0, program=40),
            mido.Message("program_change", channel=1, program=30),
            mido.MetaMessage("time_signature", numerator=6, denominator=8),
        ],
        [
            mido.Message("program_change", channel=0, program=41),
            mido.Message("note_on", channel=0, note=60, velocity=9),
            mido.Message("program_change", channel=0, program=42, time=10),
            mido.Message("note_off", channel=0, note=60),
            mido.Message("note_on", channel=0, note=62, velocity=9),
            mido.Message("note_off", channel=0, note=62, time=5),
        ],
        [
            mido.Message("note_on", channel=1, note=64, velocity=9),
            mido.Message("note_off", channel=1, note=64, time=5),
        ],
        [
            mido.Message("program_change", channel=0, program=50),
            mido.Message("note_on", channel=0, note=65, velocity=9),
            mido.Message("note_off", channel=0, note=65, time=5),
        ],
    ]
    file = mido.MidiFile(tracks=[mido.MidiTrack(track) for track in tracks])
    buffer = io.BytesIO()
    file.save(file=buffer)
    midi = parse_midi(buffer.getvalue(), name="x.mid")
    programs = dict(zip(midi.notes.pitch.tolist(), midi.notes.program.tolist(), strict=True))
    assert programs == {60: 41, 62: 42, 64: 30, 65: 50}
    assert midi.time_signatures == [(0, 6, 8)]
