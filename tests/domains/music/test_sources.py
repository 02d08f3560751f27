import io
import logging
import random
import tarfile
import zipfile

import pytest
from pretty import midi_bytes

from triptych.domains.music.midi import MAX_BYTES
from triptych.domains.music.sources.base import SPLITS
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.sources.midi_folder import MidiFolder, stored_files
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.errors import UserError


@pytest.fixture
def folder(tmp_path, make_piano):
    """40 files of different notes, some in sub-folders."""
    root = tmp_path / "midi"
    for number in range(40):
        path = root / f"part{number % 3}" / f"{number:02d}.{'mid' if number % 2 else 'MIDI'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(midi_bytes(make_piano([(40 + number, 0, 1, 64)])))
    return root


def names(source, split):
    return [piece.name for piece in source.load(split, EVENTS)]


def test_every_file_is_in_one_split(folder):
    source = MidiFolder(str(folder), validation_share=0.2, test_share=0.2)
    found = [name for split in SPLITS for name in names(source, split)]
    assert len(found) == len(set(found)) == 40
    assert all(names(source, split) for split in SPLITS)


def test_the_split_depends_on_content_alone(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    paths = sorted(folder.rglob("*.*"))
    random.Random(0).shuffle(paths)
    for number, path in enumerate(paths):
        (other / f"x{number}.mid").write_bytes(path.read_bytes())

    def pitches(root, split):
        source = MidiFolder(str(root), validation_share=0.2, test_share=0.2)
        return sorted(int(piece.content.pitch[0]) for piece in source.load(split, EVENTS))

    for split in SPLITS:
        assert pitches(folder, split) == pitches(other, split)


def test_a_new_file_moves_no_other(folder, make_piano):
    before = {split: names(MidiFolder(str(folder)), split) for split in SPLITS}
    (folder / "00-new.mid").write_bytes(midi_bytes(make_piano([(90, 0, 1, 64)])))
    for split in SPLITS:
        after = names(MidiFolder(str(folder)), split)
        assert [name for name in after if name != "00-new.mid"] == before[split]


def test_a_corrupt_file_is_skipped_counted_and_named(folder, caplog):
    (folder / "bad.mid").write_bytes(b"MThd nonsense")
    (folder / "empty.mid").write_bytes(b"")
    (folder / "notes.txt").write_text("no music")
    with caplog.at_level(logging.WARNING):
        found = [name for split in SPLITS for name in names(MidiFolder(str(folder)), split)]
    assert len(found) == 40
    assert "bad.mid" in caplog.text
    assert "empty.mid" in caplog.text
    assert "skipped 1 of" in caplog.text or "skipped 2 of" in caplog.text
    assert "notes.txt" not in caplog.text


def test_drums_alone_are_skipped_and_named(tmp_path, make_piano, caplog):
    drums = make_piano([(40, 0, 1, 64)])
    drums.instruments[0].is_drum = True
    (tmp_path / "drums.mid").write_bytes(midi_bytes(drums))
    with pytest.raises(UserError, match="no piece"):
        MidiFolder(str(tmp_path), validation_share=0.001, test_share=0.0).load("train", EVENTS)
    assert "drums.mid holds no notes but drums" in caplog.text


def archive_of(folder, path, prefix="set-v1"):
    with tarfile.open(path, "w:gz") as tar:
        for file in sorted(folder.rglob("*.*"), reverse=True):
            tar.add(file, arcname=f"{prefix}/{file.relative_to(folder).as_posix()}")
    return path


def test_an_archive_holds_the_same_pieces(folder, tmp_path):
    archive = archive_of(folder, tmp_path / "a.tar.gz", prefix="set")
    beside = tmp_path / "beside"
    beside.mkdir()
    archive_of(folder, beside / "b.tar.gz", prefix="set")
    for split in SPLITS:
        expected = [f"set/{name}" for name in names(MidiFolder(str(folder)), split)]
        assert names(MidiFolder(str(archive)), split) == expected
        assert names(MidiFolder(str(beside)), split) == expected


def test_a_zip_holds_the_same_pieces(folder, tmp_path):
    beside = tmp_path / "beside"
    beside.mkdir()
    for path in (tmp_path / "a.zip", beside / "b.ZIP"):
        with zipfile.ZipFile(path, "w") as packed:
            for file in sorted(folder.rglob("*.*"), reverse=True):
                packed.write(file, f"set/{file.relative_to(folder).as_posix()}")
            packed.writestr("__MACOSX/set/._00.mid", b"no music")
    for split in SPLITS:
        expected = [f"set/{name}" for name in names(MidiFolder(str(folder)), split)]
        assert names(MidiFolder(str(tmp_path / "a.zip")), split) == expected
        assert names(MidiFolder(str(beside)), split) == expected


def test_a_damaged_zip_is_told_by_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.mid", random.Random(0).randbytes(20_000))
    content = bytearray((tmp_path / "a.zip").read_bytes())
    for damaged in (content[:9_000], content[:500] + bytes(200) + content[700:]):
        (tmp_path / "a.zip").write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.zip is not a file or archive that can be read"):
            MidiFolder(str(tmp_path)).load("train", EVENTS)


def test_files_of_all_endings_and_behind_links_are_read(tmp_path, make_piano):
    music = tmp_path / "music"
    music.mkdir()
    for number, ending in enumerate(["mid", "MIDI", "kar", "rmi", "MID", "Kar"]):
        content = midi_bytes(make_piano([(40 + number, 0, 1, 64)]))
        (music / f"{number}.{ending}").write_bytes(content)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "sub").symlink_to(music)
    pieces = MidiFolder(str(tmp_path / "links")).load("all", EVENTS)
    assert [piece.name[:5] for piece in pieces] == [f"sub/{number}" for number in range(6)]


def test_damage_in_the_files_of_a_folder_is_told_once(tmp_path, make_piano, caplog):
    for number in range(7):
        content = midi_bytes(make_piano([(40 + number, 0, 1, 64)]))
        (tmp_path / f"{number}.mid").write_bytes(content[:-1])
    with caplog.at_level(logging.WARNING):
        pieces = MidiFolder(str(tmp_path)).load("all", EVENTS)
    (record,) = caplog.records
    assert len(pieces) == 7
    assert "damage in 7 files: 0.mid: 1 place left out: track 2" in record.getMessage()


EVENTS, CHORALES = EventTokenizer(), ChoraleTokenizer()
CSV = "composer,split,midi_filename\n" + "".join(
    f'"Bach, J. S.",{split},part{n % 3}/{n:02d}.{"mid" if n % 2 else "MIDI"}\n'
    for n, split in enumerate(["train"] * 20 + ["validation"] * 10 + ["test"] * 8)
)


@pytest.mark.parametrize("place", ["beside", "inside", "folder"])
def test_the_csv_decides_where_there_is_one(folder, tmp_path, place):
    if place == "folder":
        (folder / "maestro.csv").write_text(CSV)
        root = folder
    else:
        if place == "inside":
            (folder / "maestro.csv").write_text(CSV)
        root = tmp_path / "data"
        root.mkdir()
        archive_of(folder, root / "a.tar.gz")
        if place == "beside":
            (root / "maestro.csv").write_text(CSV)
    source = MidiFolder(str(root))
    assert [len(source.load(split, EVENTS)) for split in SPLITS] == [20, 10, 8]
    pitches = {int(p.content.pitch[0]) - 40 for p in source.load("validation", EVENTS)}
    assert pitches == set(range(20, 30))


@pytest.mark.parametrize(
    ("row", "words"),
    [("x,traim,a.mid\n", "traim"), ("x,test,part0/00.MIDI\n", "into train and into test")],
)
def test_a_wrong_csv_is_told(folder, row, words):
    (folder / "maestro.csv").write_text(CSV + row)
    with pytest.raises(UserError, match=words):
        MidiFolder(str(folder)).load("train", EVENTS)


def test_what_the_csv_names_in_vain_and_does_not_name_is_counted(folder, caplog):
    (folder / "maestro.csv").write_text(CSV + "x,train,gone.midi\n")
    MidiFolder(str(folder)).load("train", EVENTS)
    assert "1 files of the csv do not exist, such as ['gone.midi']" in caplog.text
    assert "2 MIDI files are in no split of the csv" in caplog.text


def test_a_csv_beside_does_not_hide_the_table_among_the_pieces(folder):
    (folder / "part0" / "maestro.csv").write_text(CSV)
    (folder / "shopping.csv").write_text("item,price\nmilk,1\n")
    assert [len(MidiFolder(str(folder)).load(split, EVENTS)) for split in SPLITS] == [20, 10, 8]


def test_a_csv_may_have_the_two_columns_alone(folder):
    (folder / "maestro.csv").write_text("midi_filename,split\npart0/00.MIDI,test\n")
    assert names(MidiFolder(str(folder)), "test") == ["part0/00.MIDI"]


def test_the_limit_reads_the_first_by_name(folder):
    source = MidiFolder(str(folder), limit=2)
    assert names(source, "train") == names(MidiFolder(str(folder)), "train")[:2]


def test_missing_and_empty_folders_are_told(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        MidiFolder(str(tmp_path / "gone")).load("train", EVENTS)
    with pytest.raises(UserError, match="no piece"):
        MidiFolder(str(tmp_path)).load("train", EVENTS)
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"a\.tar\.gz is not a file or archive"):
        MidiFolder(str(tmp_path)).load("train", EVENTS)


def test_shares_that_leave_nothing_to_train_on_are_refused():
    with pytest.raises(ValueError, match=r"_share (is|must be)"):
        MidiFolder("x", validation_share=0.5, test_share=0.5)


def test_oversized_files_are_cut_before_they_fill_the_memory(tmp_path):
    (tmp_path / "big.mid").write_bytes(b"x" * (MAX_BYTES + 9))
    with stored_files(tmp_path, (".mid",)) as files:
        assert [len(file.read()) for file in files] == [MAX_BYTES + 1]


def test_links_in_an_archive_are_not_followed(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("x.mid")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link, io.BytesIO())
    with stored_files(tmp_path, (".mid",)) as files:
        assert files == []


# Chorales


def test_the_jsb_split_is_the_public_one(shared_data):
    source = JSBChorales(str(shared_data / "jsb-chorales"))
    sizes = [[len(p.content) * 4 for p in source.load(split, CHORALES)] for split in SPLITS]
    assert [len(split) for split in sizes] == [229, 76, 77]
    assert [sum(split) for split in sizes] == [220_912, 73_632, 75_600]


def test_a_missing_jsb_file_is_told(tmp_path):
    with pytest.raises(UserError, match=r"Jsb16thSeparated\.json\.gz does not exist"):
        JSBChorales(str(tmp_path)).load("train", CHORALES)


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_damaged_archive_is_told_by_name(folder, tmp_path, kind):
    digits = "".join(map(str, random.Random(0).sample(range(90_000), 40_000)))
    (folder / "noise.mid").write_text(digits)
    archive = tmp_path / f"a.tar.{kind}"
    with tarfile.open(archive, f"w:{kind}") as tar:
        tar.add(folder, arcname="set")
    packed, told = archive.read_bytes(), 0
    for place in range(100, len(packed) - 100, len(packed) // 20):
        wrong = bytes(byte ^ 255 for byte in packed[place : place + 9])
        archive.write_bytes(packed[:place] + wrong + packed[place + 9 :])
        try:  # the damage may make other text of text, or hit what nobody reads
            MidiFolder(str(archive)).load("train", EVENTS)
        except UserError as error:
            told += str(error).startswith(str(archive))
    assert told > 10


def test_a_csv_that_is_cut_is_told_by_name(folder):
    (folder / "maestro.csv").write_text(CSV + '"Bach, J. S.",train')
    with pytest.raises(UserError, match=r"maestro\.csv has the row .*Bach, J.*is the file cut off"):
        MidiFolder(str(folder)).load("train", EVENTS)
