"""MIDI parsed once: what is served is always what parsing the file now would give."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from triptych.domains.music import cache as module
from triptych.domains.music import events
from triptych.domains.music.cache import NotesCache, parser_version, user_folder
from triptych.domains.music.data import DataConfig, read_pieces
from triptych.domains.music.events import Notes, reference_notes
from triptych.domains.music.midi import MAX_SECONDS, midi_bytes, parse_midi
from triptych.domains.music.sources import MidiFolder, Music21Chorales
from triptych.errors import UserError


def assert_equal_notes(one: Notes, other: Notes) -> None:
    for field in fields(Notes):
        first, second = getattr(one, field.name), getattr(other, field.name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


def parsed_now(content: bytes) -> Notes:
    return reference_notes(parse_midi(content, name="x"))


@pytest.fixture
def content(busy_piece):
    return midi_bytes(busy_piece(0))


def the_entry(folder: Path) -> Path:
    (entry,) = folder.rglob("*.npz")
    return entry


def test_the_second_reading_parses_nothing_and_is_exact(content, tmp_path, monkeypatch):
    first = NotesCache(tmp_path)
    assert_equal_notes(first.notes(content, name="a"), parsed_now(content))
    assert (first.found, first.parsed) == (0, 1)
    expected = parsed_now(content)

    def parse(*_, **__):
        raise AssertionError("parsed")

    monkeypatch.setattr(module, "parse_midi", parse)
    second = NotesCache(str(tmp_path))
    # Under another name: what counts is the content.
    assert_equal_notes(second.notes(content, name="renamed"), expected)
    assert (second.found, second.parsed) == (1, 0)


def test_an_edited_file_is_not_served_stale(content, busy_piece, tmp_path):
    edited = midi_bytes(busy_piece(1))
    NotesCache(tmp_path).notes(content, name="a.mid")
    again = NotesCache(tmp_path)
    assert_equal_notes(again.notes(edited, name="a.mid"), parsed_now(edited))
    assert again.found == 0
    # One bit of one velocity, the length unchanged.
    place = next(i for i in range(len(content) - 3, 0, -1) if content[i] == 0x90)
    flipped = bytearray(content)
    flipped[place + 2] ^= 8
    assert_equal_notes(again.notes(bytes(flipped), name="a.mid"), parsed_now(bytes(flipped)))


@pytest.mark.parametrize("what", ["code", "library"])
def test_another_parser_is_not_served_what_the_old_one_made(content, tmp_path, monkeypatch, what):
    NotesCache(tmp_path).notes(content, name="a")
    before = parser_version()
    source, version = module.inspect.getsource, module.importlib.metadata.version
    if what == "code":
        # A changed representation: the pedal goes down one step earlier.
        monkeypatch.setattr(
            module.inspect,
            "getsource",
            lambda of: source(of).replace("PEDAL_DOWN = 64", "PEDAL_DOWN = 63"),
        )
        monkeypatch.setattr(events, "PEDAL_DOWN", 63)
    else:
        monkeypatch.setattr(
            module.importlib.metadata,
            "version",
            lambda name: "99" if name == "pretty_midi" else version(name),
        )
    parser_version.cache_clear()
    try:
        assert parser_version() != before
        again = NotesCache(tmp_path)
        assert_equal_notes(again.notes(content, name="a"), parsed_now(content))
        assert (again.found, again.parsed) == (0, 1)
    finally:
        parser_version.cache_clear()


def test_a_damaged_entry_is_parsed_again_and_replaced(content, tmp_path):
    NotesCache(tmp_path).notes(content, name="a")
    entry = the_entry(tmp_path)
    whole = entry.read_bytes()
    expected = parsed_now(content)
    cuts = [b"", whole[:1], whole[: len(whole) // 2], whole[:-1], b"\x93NUMPY and no more"]
    array = tmp_path / "array.npy"
    np.save(array, np.zeros(3))
    cuts.append(array.read_bytes())
    for damaged in cuts:
        entry.write_bytes(damaged)
        cache = NotesCache(tmp_path)
        assert_equal_notes(cache.notes(content, name="a"), expected)
        assert (cache.found, cache.parsed) == (0, 1), damaged[:10]
        again = NotesCache(tmp_path)
        again.notes(content, name="a")
        assert again.found == 1, "the damaged entry was not replaced"


def test_no_flipped_byte_changes_a_note(content, tmp_path):
    NotesCache(tmp_path).notes(content, name="a")
    entry = the_entry(tmp_path)
    whole = entry.read_bytes()
    expected = parsed_now(content)
    served = 0
    for place in range(0, len(whole), len(whole) // 60):
        damaged = bytearray(whole)
        damaged[place] ^= 0x11
        entry.write_bytes(bytes(damaged))
        cache = NotesCache(tmp_path)
        assert_equal_notes(cache.notes(content, name="a"), expected)
        served += cache.found
    assert served < 20, "most bytes matter, and a changed one shows"


def test_an_entry_with_another_layout_is_not_read(content, tmp_path):
    NotesCache(tmp_path).notes(content, name="a")
    entry = the_entry(tmp_path)
    with np.load(entry) as old:
        arrays = dict(old)
    for wrong in (
        {"pitch": arrays["pitch"][:-1]},
        {"onset": arrays["onset"].astype(np.float32)},
        {"release": np.array([object()] * len(arrays["onset"]))},
    ):
        np.savez(entry, **{**arrays, **wrong})
        assert_equal_notes(NotesCache(tmp_path).notes(content, name="a"), parsed_now(content))


def test_a_folder_that_cannot_be_written_is_no_error(content, busy_piece, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = NotesCache(blocked)
    assert_equal_notes(cache.notes(content, name="a"), parsed_now(content))
    cache.notes(midi_bytes(busy_piece(1)), name="b")
    assert cache.parsed == 2
    assert "cannot be added to" in cache.sentence()
    assert cache.sentence().startswith(f"0 of 2 MIDI files came parsed from {blocked}")
    # The folder is there, but the entry cannot take its place.
    in_the_way = NotesCache(tmp_path / "cache")
    entry = in_the_way._path(content)
    assert entry is not None
    entry.mkdir(parents=True)
    assert_equal_notes(in_the_way.notes(content, name="a"), parsed_now(content))
    assert "cannot be added to" in in_the_way.sentence()
    assert list(entry.parent.iterdir()) == [entry]


def test_broken_files_are_told_each_time(tmp_path, busy_piece, caplog, make_piano):
    music = tmp_path / "music"
    music.mkdir()
    for seed in range(12):
        (music / f"{seed}.mid").write_bytes(midi_bytes(busy_piece(seed)))
    drums = make_piano([(40, 0, 1, 64)])
    drums.instruments[0].is_drum = True
    (music / "drums.mid").write_bytes(midi_bytes(drums))
    (music / "torn.mid").write_bytes(midi_bytes(busy_piece(0))[:300])
    late = [(60, MAX_SECONDS - 1, MAX_SECONDS + 9, 64)]
    (music / "late.mid").write_bytes(midi_bytes(make_piano(late)))
    last = [(60, MAX_SECONDS - 0.005, MAX_SECONDS, 64)]  # the shortest note ends too late
    (music / "last.mid").write_bytes(midi_bytes(make_piano(last)))
    (music / "maestro.csv").write_text(
        "split,midi_filename\nvalidation,0.mid\n"
        + "".join(f"train,{path.name}\n" for path in music.glob("*.mid") if path.name != "0.mid")
    )
    config = DataConfig(source=MidiFolder(str(music)), cache=str(tmp_path / "cache"))
    told = []
    for turn in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            (train, validation), sentence = read_pieces(config, "train", "validation")
        assert [len(train), len(validation)] == [11, 1]
        told.append(caplog.text)
        found = 13 * turn  # the drums too: they are known to be silent
        assert sentence.startswith(f"{found} of 13 MIDI files came parsed from {tmp_path}")
    assert told[0] == told[1]
    assert all(word in told[0] for word in ("skipped 4 of 15", "torn.mid", "drums.mid", "late.mid"))
    assert "at most 7,200 s can be written" in told[0]
    unread = MidiFolder(str(music)).load("train")
    for one, other in zip(train, unread, strict=True):
        assert one.name == other.name
        assert_equal_notes(one.content, other.content)


def test_two_processes_share_a_folder(content, busy_piece, tmp_path):
    """Both write the same entries over and over, and read what the other writes."""
    pieces = [content, *(midi_bytes(busy_piece(seed)) for seed in (1, 2))]
    for number, piece in enumerate(pieces):
        (tmp_path / f"{number}.mid").write_bytes(piece)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from triptych.domains.music.cache import NotesCache\n"
        "folder = Path(sys.argv[1])\n"
        "for turn in range(12):\n"
        "    for path in sorted(folder.glob('*.mid')):\n"
        "        cache = NotesCache(folder / 'cache')\n"
        "        notes = cache.notes(path.read_bytes(), name='x')\n"
        "        entry, = [cache._path(path.read_bytes())]\n"
        "        if turn % 3 == 2:\n"
        "            cache._keep(notes, entry)\n"
        "        assert cache.found or not turn, 'an entry was seen in the middle of its writing'\n"
        "        print(path.name, int(notes.pitch.sum()), repr(float(notes.release.sum())))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in running:
        said, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        # What packages say while they are imported stands there too.
        lines = [line for line in said.splitlines() if ".mid " in line]
        assert len(lines) == 36
        for line in lines:
            number = int(line.partition(".")[0])
            notes = parsed_now(pieces[number])
            assert line.split()[1:] == [
                str(int(notes.pitch.sum())),
                repr(float(notes.release.sum())),
            ]
    left = sorted(path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert left == [".npz"] * 3, "temporary files are left behind"


def test_null_keeps_nothing_and_says_nothing(content, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = NotesCache(None)
    cache.notes(content, name="a")
    assert cache.sentence() == ""
    assert not list(tmp_path.iterdir())


def test_sources_without_midi_say_nothing(tmp_path):
    pytest.importorskip("music21")
    config = DataConfig(source=Music21Chorales(), cache=str(tmp_path / "cache"))
    (test,), sentence = read_pieces(config, "test")
    assert len(test) >= 20
    assert sentence == ""
    assert not (tmp_path / "cache").exists()


def test_auto_is_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert NotesCache().folder == tmp_path / "triptych" / "midi"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for invalid in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", invalid)
        assert user_folder() == tmp_path / "home" / ".cache" / "triptych" / "midi"
    assert NotesCache("~/mine").folder == tmp_path / "home" / "mine"


def test_an_empty_name_is_refused():
    with pytest.raises(ValueError, match="cache is empty"):
        DataConfig(cache="")


def test_errors_are_not_kept(tmp_path):
    for _ in range(2):
        with pytest.raises(UserError, match="torn"):
            NotesCache(tmp_path).notes(b"MThd", name="torn")
    assert not list(tmp_path.rglob("*.npz"))
