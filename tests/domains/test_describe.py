"""First settings for a user's own data: what they say, that they can be used, and refusals."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import mido
import numpy as np
import pytest
import yaml
from starter_data import sentences, write_images, write_lines, write_music, write_pictures

from triptych.config.schema import from_plain
from triptych.domains import find_domain
from triptych.domains.image.inference import ImageModel
from triptych.domains.language.model import SPECIALS
from triptych.domains.music.notes import Notes, Part, Score
from triptych.errors import UserError
from triptych.files.splits import hash_position, split_at
from triptych.tools import configs
from triptych.tools.new_run import language as language_data
from triptych.tools.new_run import music
from triptych.tools.new_run.data import SHARES, Description, held_out
from triptych.tools.new_run.suggest import fill, said_in_preparing, suggested


def look(domain: str, data: Path, **options: Any) -> tuple[Description, Any]:
    """The description of some data, and the settings that their file holds."""
    found = find_domain(domain)
    assert found.new_run_options is not None
    assert found.description is not None
    module = import_module(found.description)
    described = module.describe(found.new_run_options(data=str(data), out="x.yaml", **options))
    template = configs.find(domain, described.template)
    assert template is not None
    settings = suggested(described, Path(str(module.__file__)).with_suffix(".yaml"))
    content = yaml.safe_load(fill(template.read_text(encoding="utf-8"), settings, []))
    trainer = content.pop("trainer")
    assert trainer["max_steps"] % trainer["val_check_interval"] == 0
    return described, from_plain(found.config_class(), content)


def text(described: Description) -> str:
    return "\n".join([*described.facts, *described.advice])


def said(domain: str, config: Any) -> str:
    """What `new-run` adds to a description."""
    return "\n".join(said_in_preparing(find_domain(domain), config))


def test_pictures(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures")
    (folder / "broken.png").write_bytes((folder / "01.png").read_bytes()[:60])
    (folder / "notes.txt").write_text("not a picture, and no other data either")
    described, config = look("image", folder)
    assert "50 images" in text(described)
    assert "skipped 1 of 51 files: broken.png (" in said("image", config)
    source = config.data.source
    assert (source.height, source.width, source.channels) == (32, 32, 1), "grey, stored as RGB"
    assert not config.model.class_conditional
    sizes = {split: len(source.load(split)) for split in ("train", "validation", "test")}
    assert sum(sizes.values()) == 50
    assert min(sizes.values()) >= 2


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    write_pictures(tmp_path, 20)
    write_music(tmp_path / "midi", 20)
    _, config = look("image", tmp_path)
    assert "20 other files left out: 20 .mid" in said("image", config)
    described, _ = look("music", tmp_path)
    assert "20 files left out: 00.jpg" in text(described)


def test_grey_pictures_of_one_size_with_classes(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "grey", 30, mode="L", classes=3)
    for path in folder.rglob("*.*"):
        from PIL import Image

        Image.open(path).resize((20, 24)).save(path)
    described, config = look("image", folder)
    source = config.data.source
    assert (source.width, source.height, source.channels) == (20, 24, 1)
    assert config.model.class_conditional
    assert "3 classes by sub-folder: class0, class1, class2" in text(described)


def test_pictures_with_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_pictures(tmp_path / split, 20)
    _, config = look("image", tmp_path)
    assert len(config.data.source.load("test")) == 20
    assert len(config.data.source.load("validation")) >= 2


def test_what_pictures_of_every_kind_need(tmp_path: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6  # turned by the camera
    values = np.arange(12, dtype=np.uint16).reshape(3, 4) * 300
    for number in range(20):
        Image.fromarray(values + number).save(tmp_path / f"{number}.png", exif=exif)
    pages = [Image.fromarray(values.T + number) for number in range(30, 40)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    (tmp_path / "photo.heic").touch()
    described, config = look("image", tmp_path)
    source = config.data.source
    assert (source.width, source.height, source.channels) == (3, 4, 1)
    assert source.value_range == (0, 4095)
    assert "30 images; Pillow's colour modes: I;16 in 30" in text(described)
    assert "1 other file left out: photo.heic" in said("image", config)
    assert int(source.load("train").pixels.max()) > 200
    Image.fromarray(np.ones((4, 3), dtype=np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(UserError, match="modes F, I;16 have values from 0 to 3339"):
        look("image", tmp_path)


def test_colours_transparency_and_frames_of_pictures(tmp_path: Path) -> None:
    from PIL import Image

    for number in range(30):
        stroke = Image.new("RGBA", (5, 5), "#ffffff00")
        stroke.putpixel((number % 5, number // 5 % 5), (255, 255, 255, 255 - number))
        stroke.save(tmp_path / f"{number:02}.png")
    _, config = look("image", tmp_path)
    assert "(white): " in said("image", config)
    assert config.data.source.channels == 1
    frames = [Image.new("RGB", (5, 5), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    _, config = look("image", tmp_path)
    assert "first of several frames is read: 1 of" in said("image", config)
    assert config.data.source.channels == 3


def test_held_out_pictures_that_are_trained_on_are_named_by_all_commands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from PIL import Image

    from triptych.domains.image.task import prepare

    write_images(tmp_path / "train", 20, (6, 6))
    (tmp_path / "train" / "again.png").write_bytes((tmp_path / "train" / "019.png").read_bytes())
    for split, count in (("val", 3), ("test", 4)):
        write_images(tmp_path / split, 5, (6, 6), seed=count)
        for number in range(count):  # equal pixels in another file
            image = Image.open(tmp_path / "train" / f"{number:03}.png").convert("RGB")
            image.save(tmp_path / split / f"{number:03}.bmp")
    leaks = ["3 of 8 validation images (37.5%) are in the", "4 of 9 test images (44.4%) are in the"]
    _, config = look("image", tmp_path)
    task, *_ = prepare(config)
    assert all(sentence in caplog.text for sentence in leaks)
    trained = ImageModel.of_run(config, task.model, task.metadata["vocabulary"])
    for split, sentence in zip(("validation", "test"), leaks, strict=True):
        assert sentence in trained.evaluate(split).details["leak"]["sentence"]
    assert "leak" not in trained.evaluate("train").details


def test_equal_pictures_are_not_called_too_few(tmp_path: Path) -> None:
    write_images(tmp_path, 1, (4, 4))
    for number in range(20):
        (tmp_path / f"copy{number}.png").write_bytes((tmp_path / "000.png").read_bytes())
    with pytest.raises(UserError, match=r"21 images, of which 1 differ"):
        look("image", tmp_path)


def test_pieces(tmp_path: Path) -> None:
    folder = write_music(tmp_path / "midi")
    (folder / "noise.mid").write_bytes(b"MThd and then nothing that is music")
    described, config = look("music", folder)
    assert described.template == "own-midi"
    assert "20 pieces" in text(described)
    assert "acoustic grand piano in 20" in text(described)
    assert "skipped 1 of 4 files: noise.mid" in said("music", config)
    sizes = [
        len(config.data.source.load(split, config.model.tokenizer))
        for split in ("train", "validation", "test")
    ]
    assert sum(sizes) == 20
    assert min(sizes) >= 2
    assert config.data.overlap * 2 == config.data.sequence_length


def test_pieces_of_several_instruments(tmp_path: Path) -> None:
    described, _ = look("music", write_music(tmp_path / "band", programs=(0, 33)))
    assert described.template == "band-midi"
    assert "that drops the pedal" in text(described)


def test_four_part_pieces(tmp_path: Path) -> None:
    """Some have pitches that a chorale lacks, and one has another number of voices."""
    folder = write_music(tmp_path / "choir", programs=(52,) * 4)
    write_music(tmp_path / "choir/other", 1, programs=(52,) * 3)
    low = mido.MidiFile(folder / "piece00.mid")
    for message in low.tracks[1]:
        if message.type in ("note_on", "note_off"):
            message.note -= 30
    low.save(folder / "piece00.mid")
    described, config = look("music", folder)
    assert described.template == "chorales"
    assert "most pieces have four parts" in text(described)
    assert config.data.source.directory == str(folder)
    sizes = [
        len(config.data.source.load(split, config.model.tokenizer))
        for split in ("train", "validation", "test")
    ]
    assert sum(sizes) == 20
    assert described.settings["data.sequence_length"].value % config.model.tokenizer.bar == 0


def four_part(*staves: list[tuple[int, ...]], programs: tuple[int, ...] = (0, 0, 0, 0)) -> Score:
    """Chords of quarters, a list for each part."""
    rows = [
        (pitch, 4 * onset, 4 * onset + 4, 80, number, programs[number])
        for number, chords in enumerate(staves)
        for onset, chord in enumerate(chords)
        for pitch in chord
    ]
    parts = [Part("", False) for _ in staves]
    return Score("x", parts, Notes.of(rows), 4, 4 * len(staves[0]), [], [])


def test_what_is_four_part_music() -> None:
    is_four_part = music._is_four_part
    voices = [[(60 - 5 * voice + onset % 3,) for onset in range(60)] for voice in range(4)]
    staves = [[a + b for a, b in zip(*pair, strict=True)] for pair in (voices[:2], voices[2:])]
    assert is_four_part(four_part(*voices))
    assert is_four_part(four_part(*staves))
    assert not is_four_part(four_part(*voices, programs=(40, 40, 41, 42)))  # a string quartet
    assert not is_four_part(four_part(*voices[:3]))
    divided = [*voices[:3], [*voices[3][:-1], (40, 45)]]  # the last chord has five notes
    assert is_four_part(four_part(*divided))
    chords = [[(40, 45)] * 60, *voices[:3]]
    assert not is_four_part(four_part(*chords))


def test_a_csv_of_splits_decides(tmp_path: Path) -> None:
    folder = write_music(tmp_path / "midi", 8)
    splits = ["train"] * 6 + ["validation", "test"]
    rows = [f"piece{number:02}.mid,{split}" for number, split in enumerate(splits)]
    write_lines(folder / "splits.csv", ["midi_filename,split", *rows])
    described, config = look("music", folder)
    assert not any(key.endswith("_share") for key in described.settings)
    assert len(config.data.source.load("train", config.model.tokenizer)) == 6


def items_in(config: Any) -> dict[str, int]:
    source = config.data.source
    return {split: len(source.items(split)) for split in source.splits()}


def test_two_files_of_sentences(tmp_path: Path) -> None:
    for language in ("fr", "en"):
        write_lines(tmp_path / f"news.{language}", sentences(language, 2000))
    described, config = look("translation", tmp_path)
    assert "2,000 sentence pairs" in text(described)
    assert "LATIN 100%" in text(described)
    source = config.data.source
    assert (source.source_language, source.target_language) == ("en", "fr")
    sizes = items_in(config)
    assert sum(sizes.values()) == 2000
    assert min(sizes["validation"], sizes["test"]) >= 20
    _, swapped = look("translation", tmp_path, source_language="fr")
    both = set(zip(sentences("fr", 2000), sentences("en", 2000), strict=True))
    assert set(swapped.data.source.items("test")) <= both
    with pytest.raises(UserError, match="names say en and fr"):
        look("translation", tmp_path, source_language="de")


def test_files_of_all_splits(tmp_path: Path) -> None:
    for split, count in (("train", 200), ("dev", 30), ("test_2016", 20)):
        for language in ("fr", "en"):
            write_lines(tmp_path / f"{split}.{language}", sentences(language, count))
    described, config = look("translation", tmp_path)
    assert items_in(config) == {"train": 200, "validation": 30, "test": 20}
    assert "validation, test" in text(described)


def test_sides_without_a_language(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.tgt", sentences("en", 300))
    write_lines(tmp_path / "train.src", sentences("ko", 300))
    described, config = look("translation", tmp_path)
    source = config.data.source
    assert source.source_language == "ko", "its script belongs to one language"
    assert source.targets == "translations"
    assert source.target_language in text(described)
    assert source.items("train")[0][0][0] > "가"
    _, config = look("translation", tmp_path, target_language="en")
    assert config.data.source.target_language == "en"
    (tmp_path / "train.tgt").rename(tmp_path / "b.txt")
    (tmp_path / "train.src").rename(tmp_path / "a.txt")
    _, config = look("translation", tmp_path)
    assert sum(items_in(config).values()) == 300


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
        sizes = items_in(config)
        assert sum(sizes.values()) == 300
        assert sizes["validation"] == 30 if with_splits else sizes["validation"] >= 20
        assert config.data.source.source_column == "en"


def test_one_file_of_lines(tmp_path: Path) -> None:
    book = write_lines(tmp_path / "book.txt", sentences("en", 2000))
    described, config = look("language", book)
    assert "2,000 lines of text of book.txt" in text(described)
    assert type(config.task).__name__ == "NextToken"
    assert config.data.source.one_per_line
    sizes = items_in(config)
    assert sum(sizes.values()) == 2000
    for split in ("validation", "test"):
        assert described.settings[f"data.source.{split}_share"].why == f"{sizes[split]} lines"
    _, masked = look("language", tmp_path, task="masked")
    assert type(masked.task).__name__ == "MaskedTokens"
    assert items_in(masked) == sizes
    assert masked.data.tokenizer.lowercase


def test_what_is_said_about_tokens_is_what_training_reads(tmp_path: Path) -> None:
    short, long = sentences("en", 570), [" ".join(sentences("en", 20, seed)) for seed in range(30)]
    write_lines(tmp_path / "train.txt", [*short, *long])
    write_lines(tmp_path / "val.txt", sentences("en", 20, 1))
    write_lines(tmp_path / "test.txt", sentences("en", 20, 2))
    for task, specials in (("next_token", 1), ("masked", 2)):
        described, config = look("language", tmp_path, task=task)
        data = config.data
        tokenizer = data.tokenizer.build(
            config.task.texts(data.source), data.vocabulary_size, SPECIALS
        )
        documents = data.source.items("train")
        lengths = [len(tokenizer.encode(line)) + specials for (line,) in documents]
        fitting = sum(length <= data.max_length for length in lengths) / 600
        assert f"about {fitting:.0%} of" in described.settings["data.max_length"].why
        assert f"{min(lengths)} to {max(lengths)} tokens" in text(described)
        assert f"about {float(f'{sum(lengths):.3g}'):,.0f} tokens" in text(described)
        sizes = Path(str(language_data.__file__)).with_suffix(".yaml")
        n_steps = suggested(described, sizes)["trainer.max_steps"]
        passes = round(n_steps.value * data.max_tokens / sum(lengths))
        assert f"about {passes:,} passes" in n_steps.why


def test_blank_lines_and_names_of_splits(tmp_path: Path) -> None:
    lines = sentences("fr", 900)
    paragraphs = ["\n".join(lines[start : start + 3]) + "\n" for start in range(0, 900, 3)]
    write_lines(tmp_path / "part1" / "train.txt", paragraphs[:200])
    write_lines(tmp_path / "more.txt", paragraphs[200:250])
    write_lines(tmp_path / "dev.txt", [*paragraphs[250:], ""])
    described, config = look("language", tmp_path)
    source = config.data.source
    assert not source.one_per_line
    assert set(source.files["train"]) == {"part1/train.txt", "more.txt"}
    sizes = items_in(config)
    assert sizes["validation"] == 50
    assert sizes["train"] + sizes["test"] == 250
    assert "250 documents between blank lines: 3 lines" in text(described)
    write_lines(tmp_path / "more.txt", ["é" + line for line in lines])
    _, config = look("language", tmp_path / "more.txt")
    assert not config.data.tokenizer.lowercase, "accents are kept"
    assert list(config.data.source.files) == ["train"]


def test_a_second_test_set_of_text_has_its_own_name(tmp_path: Path) -> None:
    for name, count in (("train", 300), ("val", 30), ("test", 20), ("more/test", 10)):
        write_lines(tmp_path / f"{name}.txt", sentences("en", count))
    _, config = look("language", tmp_path)
    assert sorted(items_in(config).values()) == [10, 20, 30, 300]


def labelled(folder: Path, lines: list[str]) -> Path:
    return write_lines(folder / "labels.tsv", lines)


NAMED = ("French", "English")


def with_labels(n: int, label: Any = lambda n: "ab"[n % 2], *, texts: int = 1) -> list[str]:
    lines = sentences("en", n * texts)
    rows = [lines[place : place + texts] for place in range(0, n * texts, texts)]
    return ["\t".join([*row, label(place)]) for place, row in enumerate(rows)]


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("header", [False, True])
def test_lines_with_labels(tmp_path: Path, texts: int, header: bool) -> None:
    names = ["\t".join(["text"] * texts + ["label"])] * header
    data = labelled(tmp_path, [*names, *with_labels(300, texts=texts)])
    for path in (data, tmp_path):
        described, config = look("language", path)
        assert type(config.task).__name__ == ("Classification" if texts == 1 else "Entailment")
        source = config.data.source
        assert sum(len(source.items(split)) for split in source.splits()) == 300
        assert "2 labels: a 50%, b 50%" in text(described)
        assert "300 lines with labels" in text(described)
    labelled(tmp_path, [*names, *with_labels(150, texts=texts)])
    data.rename(tmp_path / "dev.tsv")
    labelled(tmp_path, [*names, *with_labels(200, texts=texts)])
    _, config = look("language", tmp_path)
    assert len(config.data.source.items("validation")) == 150


def test_a_first_line_with_a_label_is_no_header(tmp_path: Path) -> None:
    """French is a word for a column too."""
    described, config = look(
        "language", labelled(tmp_path, with_labels(200, lambda n: NAMED[n % 2]))
    )
    assert not config.data.source.header
    assert "200 lines with labels" in text(described)
    words = with_labels(200, lambda n: NAMED[n] if n < 2 else "ab"[n % 2])
    described, config = look("language", labelled(tmp_path, ["English\tFrench", *words]))
    assert config.data.source.header, "a cell that comes again once may be a name"


def test_one_table_without_an_ending_in_a_folder(tmp_path: Path) -> None:
    data = labelled(tmp_path, with_labels(200))
    data.rename(tmp_path / "SMSCollection")
    (tmp_path / "readme").write_text("About the data.")
    described, config = look("language", tmp_path)
    assert "200 lines with labels of SMSCollection" in text(described)
    assert sum(len(config.data.source.items(each)) for each in config.data.source.splits()) == 200


def rare_label(folder: Path) -> None:
    """Write lines of which one alone has its label; its hash puts it into the validation split."""
    lines = with_labels(200)
    first = next(n for n, line in enumerate(lines) if n and hash_position(line[:-2].encode()) < 0.1)
    lines[first] = f"{lines[first][:-1]}rare"
    labelled(folder, lines)


def write_bytes(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "a.txt").write_bytes(content)


ENGLISH = "\n".join(sentences("en", 200))


def held_out_text(folder: Path, content: bytes) -> None:
    write_lines(folder / "train.txt", ENGLISH.splitlines())
    (folder / "test.txt").write_bytes(content)


def some_lines(folder: Path, **counts: int) -> None:
    for language, count in counts.items():
        write_lines(folder / f"train.{language}", sentences(language, count))


def few_pictures(folder: Path) -> None:
    write_pictures(folder, 3)
    (folder / "broken.png").write_bytes(b"no picture")


def loose_pictures(folder: Path) -> None:
    write_pictures(folder, 8, classes=2)
    write_pictures(folder, 4)


def not_utf8(folder: Path) -> None:
    some_lines(folder, fr=200, en=200)
    (folder / "train.en").write_bytes("감사합니다.\n".encode("euc-kr") * 200)


@pytest.mark.parametrize(
    ("domain", "fill_folder", "says"),
    [
        ("image", lambda f: None, "holds no images; it is empty"),
        ("translation", lambda f: write_pictures(f, 3), "holds 00.jpg, .*expected two text files"),
        ("image", few_pictures, "3 images that can be used; expected 4 .*broken.png"),
        ("image", loose_pictures, "a sub-folder is a class"),
        ("translation", lambda f: some_lines(f, fr=200, en=199), "has 199 lines and .* has 200"),
        ("translation", lambda f: some_lines(f, fr=50, en=50), "has 50 sentence pairs"),
        ("translation", lambda f: some_lines(f, fr=50), "holds train.fr; expected two"),
        ("translation", not_utf8, "train.en, line 1 is not UTF-8"),
        ("language", lambda f: write_pictures(f, 3), "holds no text files.*00.jpg"),
        ("language", lambda f: write_bytes(f, b""), "no text in a.txt"),
        ("language", lambda f: held_out_text(f, b""), "no text in test.txt"),
        ("language", lambda f: held_out_text(f, b"a\0b\n"), r"test\.txt has NUL"),
        ("language", lambda f: write_bytes(f, bytes(range(256))), "not UTF-8.*binary"),
        ("language", lambda f: write_bytes(f, ENGLISH.encode("utf-16-le")), "NUL.*UTF-16"),
        ("language", lambda f: write_bytes(f, ENGLISH.encode()[:500]), "lines of text to train on"),
        ("language", lambda f: write_bytes(f, b"word " * 10**6), "1 line .*4,999,999 characters"),
        ("language", lambda f: labelled(f, ["a\tb"] * 40), "40 lines with labels"),
        ("language", lambda f: labelled(f, with_labels(200, lambda n: "a")), "1 different value"),
        ("language", lambda f: labelled(f, with_labels(200, str)), "200 different values"),
        ("language", lambda f: labelled(f, with_labels(200, texts=3)), "has 4 cells; expected"),
        ("language", rare_label, "has the label 'rare'"),
    ],
)
def test_refusals(tmp_path: Path, domain: str, fill_folder: Any, says: str) -> None:
    fill_folder(tmp_path / "data")
    (tmp_path / "data").mkdir(exist_ok=True)
    with pytest.raises(UserError, match=says):
        look(domain, tmp_path / "data")


def test_tables_and_texts_in_one_folder(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.txt", sentences("en", 300))
    labelled(tmp_path, with_labels(200))
    with pytest.raises(UserError, match="--task"):
        look("language", tmp_path)
    assert type(look("language", tmp_path, task="masked")[1].task).__name__ == "MaskedTokens"
    _, config = look("language", tmp_path, task="classification")
    assert len(config.data.source.files["train"]) == 1
    with pytest.raises(UserError, match="is a table"):
        look("language", tmp_path / "labels.tsv", task="masked")


@pytest.mark.parametrize("domain", ["image", "language", "music", "translation"])
def test_a_folder_that_does_not_exist(tmp_path: Path, domain: str) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        look(domain, tmp_path / "nowhere")


def test_shares_leave_no_split_empty() -> None:
    for count in (12, 20, 50, 400):
        places = [hash_position(f"{count} {n}".encode()) for n in range(count)]
        settings = held_out(places, ("test", "validation"), usual=0.1)
        assert list(settings) == ["test_share", "validation_share"]
        share = settings["test_share"].value
        shares = {"test": share, "validation": share}
        found = [split_at(place, shares) for place in places]
        for split in shares:
            assert settings[f"{split}_share"] == (share, f"{found.count(split)} items")
            assert found.count(split) >= 2
        smaller = [other for other in SHARES if 0.1 <= other < share]
        for other in smaller:
            shares = dict.fromkeys(shares, other)
            found = [split_at(place, shares) for place in places]
            assert min(found.count("test"), found.count("validation")) < 2
    # With 0.1 and 0.15 one item is below the first share; with 0.2 both splits have two or more.
    places = [0.05, 0.16, 0.17, 0.25, 0.35, 0.5, 0.6, 0.7]
    assert held_out(places, ("test", "validation"), usual=0.1)["test_share"].value == 0.2
    assert held_out(places, (), usual=0.1) == {}
    with pytest.raises(UserError, match="too few"):
        held_out([0.9, 0.95], ("test", "validation"), usual=0.1)
