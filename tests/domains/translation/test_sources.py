"""Reading sentence pairs: exact lines, honest counts, one sentence for what is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import yaml

from triptych.config.schema import from_plain
from triptych.domains.translation.config import Config
from triptych.domains.translation.sources import ParallelText, TabSeparated
from triptych.errors import UserError
from triptych.files.lines import read_lines
from triptych.files.splits import source_to_score
from triptych.text.tables import read_columns


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# Lines -------------------------------------------------------------------------------------------


INSIDE = "a\u2028b\x85c\x0bd\x0ce\x1cf\u2029g\rh"


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("\na", ["", "a"]),
        (b"\xef\xbb\xbfa\n", ["a"]),  # a byte order mark is not text
        (f"{INSIDE}\nsecond\n", [INSIDE, "second"]),
    ],
)
def test_only_line_feeds_end_lines(
    tmp_path: Path, name: str, content: str | bytes, lines: list[str]
) -> None:
    """The last line counts with or without its end."""
    assert read_lines(write(tmp_path / name, content)) == lines


def test_blanks_and_carriage_returns_are_stripped_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "a.en", " \ta b\t \r\n\r\n\u00a0kept\u2028\n")
    write(tmp_path / "a.de", "A\nB\nC \n")
    pairs = parallel(tmp_path, train=["a.{language}"]).items("train")
    assert pairs == [("a b", "A"), ("", "B"), ("\u00a0kept\u2028", "C")]


def test_invalid_utf8_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "text.de", b"gut\nsch\xf6n, gr\xc3\xbcn\n")
    with pytest.raises(UserError, match=r"text\.de, line 2 is not UTF-8: byte 0xf6"):
        read_lines(path)


@pytest.mark.parametrize("fault", ["truncated", "damaged", "only a header"])
def test_a_broken_gzip_file_is_named(tmp_path: Path, fault: str) -> None:
    whole = gzip.compress(b"a line\n" * 500)
    broken = {
        "truncated": whole[:-20],
        "damaged": whole[:15] + b"\xff\xff\xff" + whole[18:],
        "only a header": whole[:5],
    }[fault]
    path = tmp_path / "text.de.gz"
    path.write_bytes(broken)
    with pytest.raises(UserError, match=r"text\.de\.gz is not a complete gzip file"):
        read_lines(path)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.txt does not exist"):
        read_lines(tmp_path / "nowhere.txt")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_lines(tmp_path)


# Line-aligned files ------------------------------------------------------------------------------


def parallel(folder: Path, **files: list[str]) -> ParallelText:
    return ParallelText(directory=str(folder), files=files)


def test_files_of_a_split_are_read_one_after_the_other(tmp_path: Path) -> None:
    write(tmp_path / "one.en", "a\nb\n")
    write(tmp_path / "one.de", "A\nB\n")
    write(tmp_path / "news-src.eng.gz", "c\n")
    write(tmp_path / "news-ref.deu.gz", "C\n")
    corpus = parallel(tmp_path, train=["one.{language}", "news-src.eng.gz | news-ref.deu.gz"])
    assert corpus.items("train") == [("a", "A"), ("b", "B"), ("c", "C")]


def test_unequal_line_counts_name_both_files_and_both_counts(tmp_path: Path) -> None:
    write(tmp_path / "t.en", "a\nb\n")
    write(tmp_path / "t.de", "A\nB\nC\n")
    with pytest.raises(UserError, match=r"t\.en has 2 lines and \S*t\.de has 3;"):
        parallel(tmp_path, train=["t.{language}"]).items("train")


def test_empty_sides_stay_in_every_split(tmp_path: Path) -> None:
    write(tmp_path / "t.en", "a\n\nc\n")
    write(tmp_path / "t.de", "A\nB\n \n")
    corpus = parallel(tmp_path, test=["t.{language}"])
    assert corpus.items("test") == [("a", "A"), ("", "B"), ("c", "")]


def test_unknown_splits_and_missing_files_are_named(tmp_path: Path) -> None:
    corpus = parallel(tmp_path, train=["t.{language}"], test=["u.{language}"])
    with pytest.raises(UserError, match=r"no split 'dev'; they have train, test"):
        corpus.items("dev")
    with pytest.raises(UserError, match=r"t\.en does not exist"):
        corpus.items("train")


def test_one_file_for_both_sides_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t.en", "a\n")
    for corpus in (
        parallel(tmp_path, train=["t.en"]),
        ParallelText("en", "en", directory=str(tmp_path), files={"train": ["t.{language}"]}),
    ):
        with pytest.raises(UserError, match=r"both sides would be read from \S*t\.en; expected"):
            corpus.items("train")


# Tab-separated files -----------------------------------------------------------------------------


def table(folder: Path, *names: str, **files: list[str]) -> TabSeparated:
    """Return the source of tables that have a column with the split of each row."""
    return TabSeparated(
        "ko",
        "en",
        directory=str(folder),
        files={**{split: [*names] for split in ("train", "validation", "test")}, **files},
        source_column="ko",
        target_column="en",
        split_column="split",
        split_names={"validation": "dev"},
    )


def test_columns_are_found_by_name_and_files_are_joined(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv.gz", 'split\tko\ten\nxtrain\t가\tGo\ntrain\t나\t"I\ndev\t다\tall\n')
    write(tmp_path / "b.tsv", "en\tsplit\tko\r\nB\ttrain\t라\r\nempty\ttest\t\r\n")
    corpus = table(tmp_path, "a.tsv.gz", "b.tsv")
    assert corpus.items("train") == [("나", '"I'), ("라", "B")]
    assert corpus.items("validation") == [("다", "all")]
    assert corpus.items("test") == [("", "empty")]


def test_one_file_per_split_needs_no_split_column(tmp_path: Path) -> None:
    write(tmp_path / "my-train.tsv", "ko\ten\n가\tGo\n")
    write(tmp_path / "my-dev.tsv", "ko\ten\n나\tI\n")
    corpus = TabSeparated(
        directory=str(tmp_path),
        files={"train": ["my-train.tsv"], "validation": ["my-dev.tsv"]},
        source_column="ko",
        target_column="en",
    )
    assert corpus.items("train") == [("가", "Go")]
    assert corpus.items("validation") == [("나", "I")]
    with pytest.raises(UserError, match="no split 'test'"):
        corpus.items("test")


def test_a_test_set_from_elsewhere_may_be_line_aligned(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "split\tko\ten\ntrain\t가\tGo\ntest\t나\tI\n")
    write(tmp_path / "b.ko", "다\n라\n")
    write(tmp_path / "b.en", "all\nra\n")
    corpus = table(tmp_path, "a.tsv", other=["b.{language}"])
    assert corpus.splits() == ["train", "validation", "test", "other"]
    assert corpus.items("test") == [("나", "I")]
    assert corpus.items("other") == [("다", "all"), ("라", "ra")]
    (tmp_path / "b.en").unlink()
    with pytest.raises(UserError, match=r"b\.en does not exist"):
        corpus.items("other")


def test_tabs_are_the_only_separator_inside_a_row(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "split\tko\ten\ntrain\t가\u2028나\ta\x85b, c\n")
    corpus = table(tmp_path, "a.tsv")
    assert corpus.items("train") == [("가\u2028나", "a\x85b, c")]


def test_blank_lines_of_a_table_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\nko\ten\n가\tGo\n \n\t\n나\tI\n\n", encoding="utf-8")
    rows = [row.cells for row in read_columns(tmp_path / "a.tsv", ["en", "ko"])]
    assert rows == [["Go", "가"], ["", ""], ["I", "나"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("split\tkor\ten\n", r"a\.tsv has no column 'ko'; its header has split, kor, en"),
        ("", r"a\.tsv has no column 'ko'; its header has nothing"),
        ("split\tko\ten\ntrain\t가\n", r"a\.tsv, line 2 has 2 cells and .* has 3"),
    ],
)
def test_malformed_tables_are_named(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path / "a.tsv", content)
    with pytest.raises(UserError, match=message):
        table(tmp_path, "a.tsv").items("train")


def test_a_split_has_files_or_a_share() -> None:
    with pytest.raises(ValueError, match="the split validation has its own files; expected one of"):
        TabSeparated(files={"train": ["a.tsv"], "validation": ["b.tsv"]}, validation_share=0.1)


# The real files ----------------------------------------------------------------------------------


def test_the_shared_corpora_have_the_documented_sizes(shared_data: Path) -> None:
    multi30k = ParallelText(directory=str(shared_data / "multi30k"))
    assert [len(multi30k.items(split)) for split in multi30k.splits()] == [29_000, 1_014, 1_000]
    names = ("tatoeba/tatoeba-ko-en.tsv.gz", "kss/kss-ko-en.tsv.gz")
    korean = table(shared_data / "ko-en", *names)
    assert [len(korean.items(split)) for split in korean.splits()] == [15_488, 615, 603]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("ko-en", {"test": 603, "jhe": 720}), ("zh-en", {"test": 1_001}), ("multi30k-en-fr", {})],
)
def test_a_shipped_recipe_finds_its_test_splits(
    shared_data: Path, name: str, sizes: dict[str, int]
) -> None:
    path = Path(__file__).parents[3] / f"configs/translation/{name}.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content.pop("trainer")
    corpus = from_plain(Config, content).data.source
    corpus = source_to_score(corpus, "test", shared_data / Path(corpus.directory).name)
    for split, size in sizes.items():
        assert len(corpus.items(split)) == size


def lines(count: int) -> list[str]:
    return [f"sentence number {number}" for number in range(count)]


def test_two_files_without_splits_are_shared_out_by_their_sources(tmp_path: Path) -> None:
    sources, targets = [*lines(400), *lines(50)], [f"t{n}" for n in range(450)]
    write(tmp_path / "all.en", "\n".join(sources) + "\n")
    write(tmp_path / "all.de", "\n".join(targets) + "\n")
    corpus = ParallelText(
        directory=str(tmp_path),
        files={"train": ["all.{language}"]},
        validation_share=0.1,
        test_share=0.2,
    )
    assert corpus.splits() == ["train", "validation", "test"]
    found = {split: corpus.items(split) for split in corpus.splits()}
    assert sorted(pair for pairs in found.values() for pair in pairs) == sorted(
        zip(sources, targets, strict=True)
    )
    said = [{source for source, _ in pairs} for pairs in found.values()]
    assert len(said[0] | said[1] | said[2]) == sum(map(len, said)), "no sentence in two splits"
    assert len(found["validation"]) == pytest.approx(45, abs=20)
    assert len(found["test"]) == pytest.approx(90, abs=30)
    more = ParallelText(
        directory=str(tmp_path),
        files={"train": ["all.{language}", "all.{language}"]},
        validation_share=0.1,
        test_share=0.2,
    )
    assert {*more.items("test")} == {*found["test"]}, "other pairs move none"


def test_one_table_without_splits_is_shared_out_too(tmp_path: Path) -> None:
    rows = "".join(f"{line}\tt{number}\n" for number, line in enumerate(lines(300)))
    write(tmp_path / "all.tsv", f"en\tde\n{rows}")
    corpus = TabSeparated(
        directory=str(tmp_path),
        files={"train": ["all.tsv"]},
        source_column="en",
        target_column="de",
        validation_share=0.1,
    )
    assert corpus.splits() == ["train", "validation"]
    assert len(corpus.items("train")) + len(corpus.items("validation")) == 300
    assert 10 < len(corpus.items("validation")) < 55


def test_a_folder_may_lie_in_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "texts").mkdir()
    write(tmp_path / "texts" / "a.en", "one\n")
    write(tmp_path / "texts" / "a.de", "eins\n")
    corpus = ParallelText(directory="~/texts", files={"train": ["a.{language}"]})
    assert corpus.items("train") == [("one", "eins")]
