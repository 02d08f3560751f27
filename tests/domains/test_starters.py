"""First settings for a user's own data: what they say, that they can be used, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from starter_data import sentences, write_lines, write_music, write_pictures

from triptych import shipped_configs
from triptych.config.schema import from_plain
from triptych.config.template import fill
from triptych.domains import find_domain
from triptych.domains.sources import hash_position, split_at
from triptych.domains.starter import SHARES, Starter, held_out_share
from triptych.domains.user_files import KINDS
from triptych.errors import UserError


def look(domain: str, data: Path, **options: Any) -> tuple[Starter, Any]:
    """The starter of some data, and the settings that its file holds."""
    found = find_domain(domain)
    assert found.new_run_options is not None
    starter = found.starter(found.new_run_options(data=str(data), out="x.yaml", **options))
    template = shipped_configs.find(domain, starter.template)
    assert template is not None
    content = yaml.safe_load(fill(template.read_text(encoding="utf-8"), starter.settings, []))
    trainer = content.pop("trainer")
    assert trainer["max_steps"] % trainer["val_check_interval"] == 0
    return starter, from_plain(found.config_class(), content)


def text(starter: Starter) -> str:
    return "\n".join([*starter.found, *starter.advice])


def test_pictures(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures")
    (folder / "broken.png").write_bytes((folder / "01.png").read_bytes()[:60])
    (folder / "notes.txt").write_text("not a picture, and no other data either")
    starter, config = look("image", folder)
    assert "50 images" in text(starter)
    assert "1 file cannot be used and is left out: broken.png" in text(starter)
    source = config.data.source
    assert (source.height, source.width, source.channels) == (32, 32, 3)
    assert not config.model.class_conditional
    sizes = {split: len(source.load(split)) for split in ("train", "validation", "test")}
    assert sum(sizes.values()) == 50
    assert min(sizes.values()) >= 2


def test_grey_pictures_of_one_size_with_classes(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "grey", 30, mode="L", classes=3)
    for path in folder.rglob("*.*"):
        from PIL import Image

        Image.open(path).resize((20, 24)).save(path)
    starter, config = look("image", folder)
    source = config.data.source
    assert (source.width, source.height, source.channels) == (20, 24, 1)
    assert config.model.class_conditional
    assert "3 classes by sub-folder: class0, class1, class2" in text(starter)


def test_pictures_with_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_pictures(tmp_path / split, 20)
    _, config = look("image", tmp_path)
    assert len(config.data.source.load("test")) == 20
    assert len(config.data.source.load("validation")) >= 2


def test_pieces(tmp_path: Path) -> None:
    folder = write_music(tmp_path / "midi")
    (folder / "noise.mid").write_bytes(b"MThd and then nothing that is music")
    starter, config = look("music", folder)
    assert starter.template == "own-midi"
    assert "20 pieces" in text(starter)
    assert "acoustic grand piano in 20" in text(starter)
    assert "1 file cannot be used and is left out: noise.mid" in text(starter)
    sizes = [len(config.data.source.load(split)) for split in ("train", "validation", "test")]
    assert sum(sizes) == 20
    assert min(sizes) >= 2
    assert config.data.overlap * 2 == config.data.sequence_length


@pytest.mark.slow
def test_pieces_of_several_instruments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("miditok")
    folder = write_music(tmp_path / "band", programs=(0, 33))
    starter, config = look("music", folder)
    assert starter.template == "band-midi"
    assert len(config.data.source.load("train")) >= 10

    from triptych.domains.music import starter as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    starter, _ = look("music", folder)
    assert starter.template == "own-midi"
    assert "triptych[instruments]" in text(starter)


def test_a_csv_of_splits_decides(tmp_path: Path) -> None:
    folder = write_music(tmp_path / "midi", 8)
    splits = ["train"] * 6 + ["validation", "test"]
    rows = [f"piece{number:02}.mid,{split}" for number, split in enumerate(splits)]
    write_lines(folder / "splits.csv", ["midi_filename,split", *rows])
    starter, config = look("music", folder)
    assert not any(key.endswith("_share") for key in starter.settings)
    assert len(config.data.source.load("train")) == 6


def pairs_in(config: Any) -> dict[str, int]:
    source = config.data.source
    return {split: len(source.pairs(split)) for split in source.splits()}


def test_two_files_of_sentences(tmp_path: Path) -> None:
    for language in ("fr", "en"):
        write_lines(tmp_path / f"news.{language}", sentences(language, 2000))
    starter, config = look("translation", tmp_path)
    assert "2,000 sentence pairs" in text(starter)
    assert "Latin 100%" in text(starter)
    source = config.data.source
    assert (source.source_language, source.target_language) == ("en", "fr")
    sizes = pairs_in(config)
    assert sum(sizes.values()) == 2000
    assert min(sizes["validation"], sizes["test"]) >= 20
    _, swapped = look("translation", tmp_path, source_language="fr")
    both = set(zip(sentences("fr", 2000), sentences("en", 2000), strict=True))
    assert set(swapped.data.source.pairs("test")) <= both
    with pytest.raises(UserError, match="names say en and fr"):
        look("translation", tmp_path, source_language="de")


def test_files_of_all_splits(tmp_path: Path) -> None:
    for split, count in (("train", 200), ("dev", 30), ("test_2016", 20)):
        for language in ("fr", "en"):
            write_lines(tmp_path / f"{split}.{language}", sentences(language, count))
    starter, config = look("translation", tmp_path)
    assert pairs_in(config) == {"train": 200, "validation": 30, "test": 20}
    assert "validation, test" in text(starter)


def test_sides_without_a_language(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.tgt", sentences("en", 300))
    write_lines(tmp_path / "train.src", sentences("ko", 300))
    starter, config = look("translation", tmp_path)
    source = config.data.source
    assert source.source_language == "ko", "its script belongs to one language"
    assert not source.of_summaries()
    assert source.target_language in text(starter)
    assert source.pairs("train")[0][0][0] > "가"
    _, config = look("translation", tmp_path, target_language="en")
    assert config.data.source.target_language == "en"
    (tmp_path / "train.tgt").rename(tmp_path / "b.txt")
    (tmp_path / "train.src").rename(tmp_path / "a.txt")
    _, config = look("translation", tmp_path)
    assert sum(pairs_in(config).values()) == 300


@pytest.mark.parametrize("with_splits", [False, True])
def test_a_table(tmp_path: Path, with_splits: bool) -> None:
    rows = zip(sentences("fr", 300), sentences("en", 300), strict=True)
    words = ["dev", "test"] * 30 + ["train"] * 240
    lines = [
        "\t".join([str(n), en, *([words[n]] if with_splits else []), fr])
        for n, (fr, en) in enumerate(rows)
    ]
    header = ["id", "en", *(["Split"] if with_splits else []), "fr"]
    write_lines(tmp_path / "table.tsv", ["\t".join(header), *lines])
    for data in (tmp_path, tmp_path / "table.tsv"):
        _, config = look("translation", data)
        sizes = pairs_in(config)
        assert sum(sizes.values()) == 300
        assert sizes["validation"] == 30 if with_splits else sizes["validation"] >= 20
        assert config.data.source.source_column == "en"


def some_lines(folder: Path, **counts: int) -> None:
    for language, count in counts.items():
        write_lines(folder / f"train.{language}", sentences(language, count))


def few_pictures(folder: Path) -> None:
    write_pictures(folder, 3)
    (folder / "broken.png").write_bytes(b"no picture")


def mixed(folder: Path) -> None:
    write_pictures(folder, 8)
    write_music(folder / "midi", 8)


def loose_pictures(folder: Path) -> None:
    write_pictures(folder, 8, classes=2)
    write_pictures(folder, 4)


def not_utf8(folder: Path) -> None:
    some_lines(folder, fr=200, en=200)
    (folder / "train.en").write_bytes(b"caf\xe9\n" * 200)


@pytest.mark.parametrize(
    ("domain", "fill_folder", "says"),
    [
        ("image", lambda f: None, "holds no images .*it is empty"),
        ("music", lambda f: None, "holds no MIDI files .*it is empty"),
        ("translation", lambda f: None, "holds no files; expected two text files"),
        ("image", lambda f: some_lines(f, fr=200), r"holds no images .*found 1 \.fr"),
        ("image", mixed, "8 MIDI files, such as midi/piece00.mid, next to images"),
        ("music", mixed, "8 images, such as 00.jpg, next to MIDI files"),
        ("translation", lambda f: write_pictures(f, 3), "3 images, such as .*next to text files"),
        ("image", few_pictures, "3 images that can be used; expected 4 .*broken.png"),
        ("image", loose_pictures, "a sub-folder is a class"),
        ("music", lambda f: write_music(f, 3), "3 MIDI files that can be used; expected 4"),
        ("translation", lambda f: some_lines(f, fr=200, en=199), "has 199 lines and .* has 200"),
        ("translation", lambda f: some_lines(f, fr=50, en=50), "has 50 sentence pairs"),
        ("translation", lambda f: some_lines(f, fr=50), "holds train.fr; expected two"),
        ("translation", lambda f: some_lines(f, fr=9, en=9, ko=9), "holds train.en, train.fr"),
        ("translation", not_utf8, "train.en, line 1 is not UTF-8"),
    ],
)
def test_refusals(tmp_path: Path, domain: str, fill_folder: Any, says: str) -> None:
    fill_folder(tmp_path / "data")
    (tmp_path / "data").mkdir(exist_ok=True)
    with pytest.raises(UserError, match=says):
        look(domain, tmp_path / "data")


@pytest.mark.parametrize("domain", ["image", "music", "translation"])
def test_a_folder_that_does_not_exist(tmp_path: Path, domain: str) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        look(domain, tmp_path / "nowhere")


def test_shares_leave_no_split_empty() -> None:
    for count in (12, 20, 50, 400):
        places = [hash_position(f"{count} {n}".encode()) for n in range(count)]
        share, counts = held_out_share(places, ("test", "validation"), usual=0.1)
        shares = {"test": share, "validation": share}
        assert counts == {
            split: sum(split_at(place, shares) == split for place in places)
            for split in ("train", "test", "validation")
        }
        assert min(counts["test"], counts["validation"]) >= 2
        smaller = [other for other in SHARES if 0.1 <= other < share]
        for other in smaller:
            shares = dict.fromkeys(shares, other)
            found = [split_at(place, shares) for place in places]
            assert min(found.count("test"), found.count("validation")) < 2
    # With 0.1 and 0.15 one item is below the first share; with 0.2 both splits have two or more.
    places = [0.05, 0.16, 0.17, 0.25, 0.35, 0.5, 0.6, 0.7]
    assert held_out_share(places, ("test", "validation"), usual=0.1)[0] == 0.2
    with pytest.raises(UserError, match="too few"):
        held_out_share([0.9, 0.95], ("test", "validation"), usual=0.1)


def test_the_kinds_of_files_are_those_that_the_domains_read() -> None:
    from triptych.domains.image.image_folder import SUFFIXES
    from triptych.domains.music.midi import MIDI_SUFFIXES

    assert set(SUFFIXES) == set(KINDS["images"])
    assert set(MIDI_SUFFIXES) == set(KINDS["MIDI files"])
