"""What the bytes of MIDI files say, damaged ones too."""

import logging
import time

import mido
import numpy as np
import pytest
from pretty import midi_bytes

from triptych.domains.music.midi import parse_midi, read_midi
from triptych.domains.music.notes import DRUMS, performance
from triptych.errors import UserError

END = bytes([0, 0xFF, 0x2F, 0])


def number(value):
    """A number of 7 bits a byte."""
    head = b"" if value < 128 else bytes([value >> 7 | 0x80])
    return head + bytes([value & 0x7F])


def note(pitch, length=96, channel=0, before=0):
    press = number(before) + bytes([0x90 | channel, pitch, 80])
    return press + number(length) + bytes([0x80 | channel, pitch, 0])


def notes(first, last):
    return b"".join(note(pitch) for pitch in range(first, last))


def chunk(name, content, length=None):
    return name + (len(content) if length is None else length).to_bytes(4, "big") + content


def midi_file(*tracks, kind=1, division=96, count=None):
    count = len(tracks) if count is None else count
    header = b"".join(value.to_bytes(2, "big") for value in (kind, count, division))
    return chunk(b"MThd", header) + b"".join(chunk(b"MTrk", track) for track in tracks)


def meta(kind, *content, before=0):
    return number(before) + bytes([0xFF, kind, len(content), *content])


def system(*content):
    return bytes([0, 0xF0, len(content) + 1, *content, 0xF7])


def pitches(score):
    return score.notes.pitch.tolist()


EIGHT = list(range(60, 68))
FAULTS = {
    "a controller over 127": bytes([0, 0xB0, 7, 200]),
    "a velocity over 127": bytes([0, 0x90, 50, 180]),
    "a program over 127": bytes([0, 0xC0, 130]),
    "a key of 9 sharps": meta(0x59, 9, 0),
    "a key of mode 2": meta(0x59, 1, 2),
    "a key of one byte": meta(0x59, 1),
    "a short channel prefix": meta(0x20),
    "a short tempo": meta(0x51, 7, 0xA1),
    "a long meter": meta(0x58, 3, 2, 24, 8, 8),
    "a tempo of 0": meta(0x51, 0, 0, 0),
    "a meter of 0": meta(0x58, 0, 2, 24, 8),
    "an absurd unit": meta(0x58, 4, 200, 24, 8),
    "a message of the device": bytes([0, 0xF3, 5]),
    "a clock": bytes([0, 0xF8]),
    "a system message without a length": bytes([0, 0xF0, 0x7E, 9, 5, 6, 0xF7]),
    "a meta event past the end": bytes([0, 0xFF, 0x58, 99, 3, 2, 24, 8]),
    "a number of five bytes": bytes([0, 0xFF, 1, 0x81, 0x80, 0x80, 0x80, 0]),
}


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("event", FAULTS.values(), ids=FAULTS)
def test_a_damaged_event_costs_no_other(event, place):
    tune = notes(60, 60 + place) + event + notes(60 + place, 68) + END
    score = parse_midi(midi_file(tune), name="x")
    assert pitches(score) == EIGHT
    assert (score.notes.onset.tolist(), score.last_tick) == ([*range(0, 768, 96)], 768)
    assert (score.tempos, score.time_signatures, score.key_signatures) == ([], [], [])
    (told,) = score.left_out
    assert told.startswith(f"track 1, tick {96 * place}: damage at the bytes {event[:8].hex(' ')}")


def test_messages_without_a_status_at_the_beginning_are_left_out():
    score = parse_midi(midi_file(bytes([0, 70, 80]) + notes(60, 68) + END), name="x")
    assert (pitches(score), len(score.left_out)) == (EIGHT, 1)


def test_damaged_events_in_a_row_are_counted_once_each():
    bad = b"".join(bytes([0, 0xB0 | channel, 7, 200]) for channel in range(16))
    score = parse_midi(midi_file(bad * 20 + notes(60, 68) + END), name="x")
    assert (pitches(score), len(score.left_out)) == (EIGHT, 320)


def test_a_byte_too_many_costs_a_note():
    score = parse_midi(midi_file(notes(50, 60) + bytes([5]) + notes(60, 70) + END), name="x")
    assert (pitches(score), len(score.left_out)) == ([*range(50, 70)], 1)
    assert score.last_tick == 20 * 96


def test_a_damaged_message_among_others_without_a_status_costs_no_other():
    messages = [bytes([0, pitch, 80, 96, pitch, 0]) for pitch in range(50, 58)]
    tune = bytes([0, 0x90]) + b"".join(messages)[1:]
    bad = tune + bytes([0, 60, 200]) + bytes([0]) + tune[2:] + END
    score = parse_midi(midi_file(bad), name="x")
    assert (pitches(score), len(score.left_out)) == ([*range(50, 58)] * 2, 1)


def test_a_status_may_be_left_out_after_events_of_the_file():
    """Some programs write it so, though the standard forbids it."""
    tune = bytes([0, 0x90, 60, 80]) + meta(1, 65) + bytes([96, 60, 0, 0, 62, 80, 96, 62, 0])
    score = parse_midi(midi_file(tune + END), name="x")
    assert (pitches(score), score.left_out) == ([60, 62], [])


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 7, 8, 20])
def test_a_file_that_is_cut_off_gives_what_it_has(cut):
    content = midi_file(notes(60, 64) + END, notes(70, 80) + END)[:-cut]
    score = parse_midi(content, name="x")
    assert pitches(score)[: 4 + 10 - 3] == [*range(60, 64), *range(70, 80)][: 4 + 10 - 3]
    (told,) = score.left_out
    assert told.startswith("track 2")


def test_a_track_without_an_end_is_told():
    score = parse_midi(midi_file(notes(60, 68)), name="x")
    assert (pitches(score), score.last_tick) == (EIGHT, 768)
    assert score.left_out == ["track 1 is cut off: it has no mark at its end"]


@pytest.mark.parametrize(
    "content",
    [
        midi_file(notes(60, 68) + END, count=0),
        chunk(b"RIFF", b"RMIDdata\0\0\0\0" + midi_file(notes(60, 68) + END)),
        chunk(b"XFIH", bytes(9)) + midi_file(notes(60, 68) + END) + chunk(b"XFKM", bytes(5)),
        bytes(128) + midi_file(notes(60, 68) + END) + bytes(3),
        midi_file(notes(60, 68) + END + bytes(4)),
        midi_file(notes(60, 64) + END + notes(64, 68) + END),
        midi_file()[:10] + b"\0\1\0\x60" + chunk(b"MTrk", notes(60, 68) + END, length=7),
        midi_file(count=1) + chunk(b"MTrk", notes(60, 68) + END, length=70_000),
        chunk(b"MThd", bytes([0, 1, 0, 1, 0, 96, 7, 7])) + chunk(b"MTrk", notes(60, 68) + END),
        midi_file(notes(60, 64) + END)
        + chunk(b"What", b"MTrk") + chunk(b"MTrk", notes(64, 68) + END),
    ],
    ids=[
        "a header that counts fewer", "RIFF", "unknown chunks around", "other bytes around",
        "zeros after the end", "an end in the middle", "a length too short", "a length too long",
        "a longer header", "an unknown chunk between",
    ],
)  # fmt: skip
def test_what_is_around_the_tracks_is_skipped(content):
    score = parse_midi(content, name="x")
    assert (sorted(pitches(score)), score.left_out) == (EIGHT, [])


def test_a_header_that_counts_more_tracks_is_told():
    score = parse_midi(midi_file(notes(60, 68) + END, count=5), name="x")
    assert (pitches(score), len(score.left_out)) == (EIGHT, 1)
    assert "counts 5 tracks, and 1 follow" in score.left_out[0]


def test_a_warning_names_the_file_the_count_and_the_first_reason(tmp_path, caplog):
    path = tmp_path / "song.mid"
    path.write_bytes(midi_file(meta(0x51, 0, 0, 0) + meta(0x59, 9, 0) + notes(60, 68) + END))
    with caplog.at_level(logging.WARNING):
        read_midi(path)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{path}: 2 places left out: track 1, tick 0: damage at the bytes 00 ff 51 03 00 00 00 00"
    )


@pytest.mark.parametrize(
    ("frames", "ticks", "per_second"),
    [(24, 10, 240), (25, 40, 1000), (25, 3, 75), (29, 80, 80 * 30 / 1.001), (30, 4, 120)],
)
def test_times_in_frames(frames, ticks, per_second):
    """Tempo events do not count there."""
    content = midi_file(
        meta(0x51, 1, 0, 0) + notes(60, 68) + END, division=(256 - frames) << 8 | ticks
    )
    score = parse_midi(content, name="x")
    assert score.notes_in_seconds.release == pytest.approx(np.arange(1, 9) * 96 / per_second)


@pytest.mark.parametrize("division", [0, 0xE700])
def test_other_divisions_of_time_are_told(division):
    with pytest.raises(UserError, match="time division"):
        parse_midi(midi_file(notes(60, 68) + END, division=division), name="x")


def test_patterns_are_one_after_the_other():
    """Each with its own tempo and meter."""
    slow = meta(0x51, *(1_000_000).to_bytes(3, "big")) + meta(0x58, 3, 2, 24, 8)
    usual = meta(0x51, *(500_000).to_bytes(3, "big")) + meta(0x58, 4, 2, 24, 8)
    content = midi_file(slow + note(60) + END, usual + note(70) + END, slow + note(80), kind=2)
    score = parse_midi(content, name="x")
    rows = score.notes_in_seconds.rows("pitch", "onset", "release")
    assert [*rows] == [(60, 0, 1), (70, 1, 1.5), (80, 1.5, 2.5)]
    assert score.time_signatures == [(0, 3, 4), (96, 4, 4), (192, 3, 4)]


def control(controller, value=0, before=0, channel=0):
    return number(before) + bytes([0xB0 | channel, controller, value])


PRESSED = bytes([0, 0x90, 60, 80, 0, 0x90, 64, 80])
GM, GM2 = system(0x7E, 0x7F, 9, 1), system(0x7E, 0x7F, 9, 3)
GS = system(0x41, 0x10, 0x42, 0x12, 0x40, 0, 0x7F, 0, 0x41)
XG = system(0x43, 0x10, 0x4C, 0, 0, 0x7E, 0)


@pytest.mark.parametrize("controller", [120, 123, 124, 127])
def test_controllers_end_notes(controller):
    tune = PRESSED + control(controller, before=48) + note(62, before=48) + END
    score = parse_midi(midi_file(tune), name="x")
    assert score.notes.release.tolist() == [48, 48, 192]


def test_notes_of_another_track_of_the_channel_go_on():
    """Keyboards send controller 123 whenever no key is down."""
    own = note(60, 48) + control(123) + END
    other = bytes([0, 0x90, 40, 80]) + number(96) + bytes([0x80, 40, 0]) + END
    assert parse_midi(midi_file(own, other), name="x").notes.release.tolist() == [48, 96]


@pytest.mark.parametrize("reset", [control(121), control(120), GM, GM2, GS, XG])
def test_resets_lift_the_pedal(reset):
    tune = control(64, 127) + note(60, 48) + bytes([48]) + reset[1:] + note(62) + END
    heard = performance(parse_midi(midi_file(tune), name="x"))
    assert heard.release.tolist() == [0.5, 1.0]


def rhythm(block, value=1):
    return system(0x41, 0x10, 0x42, 0x12, 0x40, 0x10 | block, 0x15, value, 0)


PLAIN = bytes([0, 0xC5, 24])
DRUM_CASES = [
    (PLAIN, False),
    (control(0, 127, channel=5) + PLAIN, True),
    (control(0, 126, channel=5) + PLAIN, True),
    (control(0, 120, channel=5) + PLAIN, True),
    (control(0, 121, channel=5) + PLAIN, False),
    (control(0, 8, channel=5) + PLAIN, False),
    (GS + XG + control(0, 127, channel=5) + PLAIN, True),
    (control(0, 127, channel=5) + PLAIN + control(0, 0, channel=5) + PLAIN, False),
    (control(0, 127, channel=5) + GM + PLAIN, False),
    (rhythm(6), True),
    (rhythm(6) + PLAIN, True),
    (rhythm(6, 2) + rhythm(6, 0), False),
    (rhythm(5), False),
]


@pytest.mark.parametrize(("setup", "is_drum"), DRUM_CASES)
def test_drums_by_bank_and_by_system_messages(setup, is_drum):
    tune = setup + note(40, channel=5) + END
    for tracks in ([tune], [setup + END, note(40, channel=5) + END]):
        score = parse_midi(midi_file(*tracks), name="x")
        assert [part.is_drum for part in score.parts] == [is_drum]
        assert (score.notes.program == DRUMS).tolist() == [is_drum]


def test_channel_10_plays_drums_unless_it_is_told_otherwise():
    plain = bytes([0, 0xC9, 8])
    drums = [b"", plain, control(0, 0, channel=9) + plain]
    others = [rhythm(0, 0), control(0, 121, channel=9) + plain]
    for setup, is_drum in [(setup, setup in drums) for setup in drums + others]:
        score = parse_midi(midi_file(setup + note(40, channel=9) + END), name="x")
        assert score.parts[0].is_drum is is_drum


def test_a_channel_that_changes_to_drums_has_two_parts():
    drums = control(0, 127, channel=5) + bytes([0, 0xC5, 3])
    tune = PLAIN + note(60, channel=5) + drums + note(40, channel=5) + END
    score = parse_midi(midi_file(tune), name="x")
    assert [part.is_drum for part in score.parts] == [False, True]
    assert score.notes.program.tolist() == [24, DRUMS]
    again = parse_midi(midi_bytes(score), name="x")
    assert again.notes.program.tolist() == [24, DRUMS]


STRAY = 96 * 10_000


@pytest.mark.parametrize(
    "late", [control(7, 100), meta(0x51, 8, 0, 0), control(64, 0), meta(6, 65)]
)
def test_a_late_stray_event_does_not_lengthen_the_piece(late):
    # A number of three bytes, in the place of the event's own time.
    wait = bytes([STRAY >> 14 | 0x80, STRAY >> 7 & 0x7F | 0x80, STRAY & 0x7F])
    content = midi_file(control(64, 127) + notes(60, 68) + wait + late[1:] + END)
    score = parse_midi(content, name="x")
    assert (score.last_tick, score.duration, score.tempos) == (768, 4.0, [])
    assert performance(score).release.max() == 4.0


@pytest.mark.parametrize(("quarters", "expected"), [(1, 9), (8, 16), (8.5, 8), (500, 8)])
def test_a_rest_at_the_end_is_kept_up_to_two_bars(raw_midi, quarters, expected):
    tune = [(480 * q, mido.Message(kind, note=60 + q)) for q in range(8) for kind in ["note_on"]]
    tune += [(480 * (q + 1), mido.Message("note_off", note=60 + q)) for q in range(8)]
    tune = sorted(tune, key=lambda pair: pair[0])
    end = (round(480 * (8 + quarters)), mido.MetaMessage("end_of_track"))
    score = parse_midi(raw_midi([*tune, end], ticks=480), name="x")
    assert score.last_tick == 480 * expected


def test_an_open_note_ends_with_the_end_of_its_piece():
    tune = bytes([0, 0x90, 60, 80]) + meta(0x2F, before=96)
    assert parse_midi(midi_file(tune), name="x").notes.release.tolist() == [96]


def test_key_signatures_are_read():
    tune = meta(0x59, 256 - 3, 1) + note(60) + meta(0x59, 2, 0) + note(62) + END
    score = parse_midi(midi_file(tune, meta(0x59, 256 - 3, 1) + END), name="x")
    assert score.key_signatures == [(0, -3, True), (96, 2, False)]


def test_of_meters_at_one_tick_the_last_one_counts():
    meters = [meta(0x58, count, 2, 24, 8) for count in (4, 2, 4)]
    score = parse_midi(midi_file(b"".join(meters) + END, meters[0] + notes(60, 68) + END), name="x")
    assert score.time_signatures == [(0, 4, 4), (0, 2, 4), (0, 4, 4)]
    assert score.bars().tolist() == [0, 384, 768]


@pytest.mark.parametrize("seed", range(8))
def test_garbage_after_music_ends_the_track(seed):
    """It claims to last for weeks; without that it may be music."""
    garbage = np.random.default_rng(seed).integers(0, 256, 30_000).astype(np.uint8).tobytes()
    content = midi_file(notes(60, 68) + garbage + END, notes(40, 48) + END)
    score = parse_midi(content, name="x")
    assert set(range(40, 48)) | set(EIGHT) <= set(pitches(score))
    assert len(score.notes) < 80
    assert len(score.left_out) == 1


def marked(*texts, kind=6):
    return b"".join(meta(kind, *text.encode(), before=96) for text in texts)


@pytest.mark.parametrize(
    ("texts", "n_chords"),
    [
        (["C:maj", "G7", "Am", "F#m7b5", "Bb/D", "N", "N.C."], 7),
        (["C:maj7/3", "A:min7/b7", "D:sus4(b7)", "E:hdim7", "Ebmaj9#11", "G7alt", "C6/9"], 7),
        (["C", "F", "G", "C"], 4),
        (["Verse", "Am", "Chorus"], 0),
        (["A", "B", "A", "C"], 0),
        (["Am", "Am"], 0),
        (["Intro", "Am", "F", "C", "G"], 4),
        (["Hel", "lo", "dear", "A", "friend", "C", "G7"], 0),
    ],
)
@pytest.mark.parametrize("kind", [1, 5, 6])
def test_chord_symbols(texts, n_chords, kind):
    score = parse_midi(midi_file(marked(*texts, kind=kind) + END, notes(60, 68) + END), name="x")
    chords = [text for text in texts if text not in ("Intro",)][:n_chords]
    assert [text for _, text in score.chords] == chords
    if n_chords:
        assert score.chords[-1][0] == 96 * len(texts)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_names_of_parts(encoding):
    content = "Flöte".encode(encoding)
    score = parse_midi(midi_file(meta(3, *content) + note(60) + END), name="x")
    assert [part.name for part in score.parts] == ["Flöte"]


def test_names_of_the_parts_of_one_track():
    content = midi_file(meta(3, *b"My song") + note(60) + note(40, channel=1) + END, kind=0)
    assert [part.name for part in parse_midi(content, name="x").parts] == ["", ""]
    content = midi_file(meta(3, *b"My song") + meta(4, *b"Oboe") + note(60) + END, kind=0)
    assert [part.name for part in parse_midi(content, name="x").parts] == ["Oboe"]


def test_the_largest_files_are_read_in_seconds():
    """Notes of one key that nothing ends, garbage, and damage in every other event."""
    header = midi_file()[:8] + bytes([0, 0, 0, 1, 1, 0xE0])
    garbage = np.random.default_rng(0).integers(0, 256, 300_000).astype(np.uint8).tobytes()
    presses, releases = bytes([0, 0x90, 60, 80]) * 40_000, bytes([1, 0x80, 60, 0]) * 40_000
    damaged = bytes([0, 0x90, 60, 80, 1, 0x80, 200, 0]) * 20_000
    began = time.process_time()
    for track in (presses, presses + releases, garbage, damaged):
        try:
            parse_midi(header + chunk(b"MTrk", track + END), name="x")
        except UserError:
            assert track is garbage
    assert time.process_time() - began < 30


def test_a_score_comes_back_as_it_was_written():
    frame = meta(0x51, 9, 0x27, 0xC0) + meta(0x58, 3, 2, 24, 8) + meta(0x59, 1, 0)
    chords = marked("C:maj", "G7")
    tune = meta(3, *b"Lead") + bytes([0, 0xC0, 73]) + control(64, 127) + notes(60, 68) + control(64)
    score = parse_midi(midi_file(frame + chords + END, tune + END), name="x")
    again = parse_midi(midi_bytes(score), name="x")
    assert again.parts == score.parts
    for column in ("pitch", "onset", "release", "velocity", "program"):
        assert (getattr(again.notes, column) == getattr(score.notes, column)).all()
    frames = [
        (s.tempos, s.time_signatures, s.key_signatures, s.chords, s.last_tick)
        for s in (score, again)
    ]
    assert frames[0] == frames[1]
