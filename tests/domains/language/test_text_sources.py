"""Sources of text: documents, held-out shares, and one sentence for what is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from triptych.domains.language.config import Config, DataConfig
from triptych.domains.language.sources import TabSeparated, TextFiles
from triptych.domains.language.tasks.labelled import Classification
from triptych.domains.language.tasks.masked import join_sentences
from triptych.errors import UserError


def test_blank_lines_separate_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n one \ntwo\n\n\n three\n", encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"four"))
    files = {"train": ["a.txt", "b.txt.gz"], "test": ["a.txt"]}
    source = TextFiles(directory=str(tmp_path), files=files)
    assert source.items("train") == [["one", "two"], ["three"], ["four"]]
    lines = TextFiles(directory=str(tmp_path), files=files, one_per_line=True)
    assert lines.items("train") == [["one"], ["two"], ["three"], ["four"]]
    with pytest.raises(UserError, match="no split 'validation'; they have train, test"):
        source.items("validation")


def test_held_out_documents_are_in_no_other_split(tmp_path: Path) -> None:
    text = "".join(f"sentence {number}\n\n" for number in range(300))
    (tmp_path / "all.txt").write_text(text, encoding="utf-8")
    source = TextFiles(str(tmp_path), {"train": ["all.txt"]}, validation_share=0.2, test_share=0.2)
    parts = [source.items(split) for split in ("train", "validation", "test")]
    joined = [document[0] for part in parts for document in part]
    assert len(joined) == len(set(joined)) == 300
    assert 30 < len(parts[1]) < 90
    with pytest.raises(ValueError, match="expected one of both"):
        TextFiles(files={"train": ["a"], "test": ["b"]}, test_share=0.1)


def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere.txt does not exist"):
        TextFiles(str(tmp_path), {"train": ["nowhere.txt"]}).items("train")
    (tmp_path / "bad.txt").write_bytes(b"good\nb\x81d\n")
    with pytest.raises(UserError, match=r"bad.txt, line 2 is not UTF-8"):
        TextFiles(str(tmp_path), {"train": ["bad.txt"]}).items("train")
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(UserError, match="train split has no documents"):
        TextFiles(str(tmp_path), {"train": ["empty.txt"]}).items("train")


def test_sentences_are_joined_up_to_a_length() -> None:
    sentences = [[1, 2], [3], [4, 5, 6, 7, 8, 9, 10], [11], [12, 13]]
    rows = list(join_sentences(sentences, 3))
    assert rows == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11], [12, 13]]
    assert [token for row in rows for token in row] == list(range(1, 14))


def test_a_task_reads_its_kind_of_source_alone() -> None:
    with pytest.raises(ValueError, match=r"Classification, which reads labelled texts.*TextFiles"):
        Config(task=Classification())
    with pytest.raises(ValueError, match=r"MaskedTokens, which reads documents.*TabSeparated"):
        Config(data=DataConfig(TabSeparated()))
