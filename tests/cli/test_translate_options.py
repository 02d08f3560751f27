"""Options of `translate` besides the beam: scores, constraints and sampling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import triptych

INPUT = b"sieben\n\nneunhundertvier\nzwei\n"


@pytest.fixture
def translate(cli: Any, english_checkpoint: Path) -> Callable[..., list[str]]:
    def call(*options: object, stdin: bytes = INPUT) -> list[str]:
        command = ["translate", "--checkpoint", english_checkpoint, "--device", "cpu"]
        answer = cli(*command, *options, stdin=stdin)
        assert answer.code == 0, answer.err
        return answer.out.split("\n")[:-1]

    return call


def test_scores_are_columns(translate: Callable[..., list[str]], english_checkpoint: Path) -> None:
    plain = translate("--n_best", 3, "--length_penalty", 1)
    rows = [row.split("\t") for row in translate(
        "--n_best", 3, "--length_penalty", 1, "--scores", "true", "--batch_size", 1
    )]  # fmt: skip
    assert [row[4] for row in rows] == plain
    assert [(row[0], row[1]) for row in rows] == [
        (str(line), str(rank)) for line in range(1, 5) for rank in range(1, 4)
    ]
    model = triptych.load(english_checkpoint, device="cpu")
    lines = INPUT.decode().split("\n")[:-1]
    found = model.translate(lines, n_best=3, length_penalty="1", scores=True)
    flat = [one for best in found for one in best]
    for row, one in zip(rows, flat, strict=True):
        assert (float(row[2]), float(row[3])) == pytest.approx(
            (one.score, one.log_probability), abs=1e-4
        )
        assert one.score >= one.log_probability or not one.text


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("prefix", ["nine", "ni", "two hundred a", "Zürich 7 "])
def test_a_prefix_begins_every_translation(
    translate: Callable[..., list[str]], prefix: str, sample: bool
) -> None:
    found = translate("--prefix", prefix, "--sample", sample)
    assert found[1] == ""
    assert all(text.startswith(prefix) for place, text in enumerate(found) if place != 1)


def test_required_phrases_are_there(translate: Callable[..., list[str]]) -> None:
    found = translate("--require", "hundred and")
    assert found[1] == ""
    assert all(f" {text}".count(" hundred and") for text in found if text)
    both = translate("--require", '["seven hundred", "Zürich"]', "--n_best", 2)
    for text in filter(None, both):
        assert " seven hundred" in f" {text}"
        assert " Zürich" in f" {text}"
    assert len(list(filter(None, both))) == 6


def test_lengths_and_repetition(
    translate: Callable[..., list[str]], english_checkpoint: Path
) -> None:
    tokenizer = triptych.load(english_checkpoint, device="cpu").vocabulary.target
    assert all(len(tokenizer.encode(text)) <= 2 for text in translate("--max_length", 2))
    model = triptych.load(english_checkpoint, device="cpu")
    for best in model.search(["sieben", "zwei"], min_length=9, max_length=11, n_best=2):
        assert all(9 <= len(one.tokens) <= 11 for one in best)
    for best in model.search(["sieben", "zwei"], min_length=20, no_repeat_ngram=2, n_best=2):
        for one in best:
            pairs = list(zip(one.tokens, one.tokens[1:], strict=False))
            assert len(set(pairs)) == len(pairs)


def test_sampling_depends_on_its_seed_and_settings(translate: Callable[..., list[str]]) -> None:
    hot = ["--sample", "true", "--temperature", 2.0]
    first = translate(*hot, "--seed", 1)
    assert translate(*hot, "--seed", 1) == first
    assert translate(*hot, "--seed", 2) != first
    greedy = translate("--beam", 1)
    assert translate("--sample", "true", "--temperature", 0) == greedy
    assert translate("--sample", "true", "--top_k", 1) == greedy
    assert translate("--sample", "true", "--top_p", 1e-6) == greedy


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--prefix", ""], ["prefix is empty"]),
        (["--require", '["a", ""]'], ["require", "empty phrase"]),
        (["--min_length", 5, "--max_length", 4], ["min_length (5)", "max_length (4)"]),
        (["--n_best", 5], ["n_best (5)", "beam (4)"]),
        (["--sample", "true", "--n_best", 2], ["n_best", "without sample"]),
        (["--sample", "true", "--require", "one"], ["require", "without sample"]),
        (["--sample", "true", "--scores", "true"], ["scores", "without sample"]),
        (["--temperature", 0.5], ["temperature", "sample true"]),
        (["--prefix", "one two three", "--max_length", 2], ["prefix", "max_length, which is 2"]),
        (["--require", "one two three", "--max_length", 2], ["phrase", "max_length, which is 2"]),
        (["--prefix", "one one one two", "--no_repeat_ngram", 1], ["prefix", "no_repeat_ngram"]),
        (["--require", "one one one", "--no_repeat_ngram", 1], ["phrase", "no_repeat_ngram"]),
    ],
)
def test_bad_input_is_refused_before_a_line_is_read(
    refused: Any, english_checkpoint: Path, options: list[Any], says: list[str]
) -> None:
    command = ["translate", "--checkpoint", english_checkpoint, "--device", "cpu"]
    refused(*command, *options, says=says, stdin=b"\xff")  # which would be refused if it was read


@pytest.mark.parametrize("kind", ["Characters", "Words"])
def test_other_tokenizers_from_training_to_translation(
    cli: Any, refused: Any, tiny_settings: Any, tmp_path: Path, kind: str
) -> None:
    content = tiny_settings("translation")
    path = f"triptych.text.byte_level.{kind}"
    content["data"] |= {"tokenizer": {"class_path": path}, "vocabulary_size": 60}
    (tmp_path / "n.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert cli("train", "translation", "--config", "n.yaml").code == 0
    opened = ["--checkpoint", "runs/run/checkpoints/best.ckpt", "--device", "cpu"]
    assert cli("evaluate", "translation", *opened, "--limit", 3).code == 0
    pieces = triptych.load(opened[1]).vocabulary.target.token_bytes
    prefix = next(piece.decode() for piece in pieces if piece.isalpha())[:3]
    answer = cli("translate", *opened, "--prefix", prefix, stdin="one 漢\ntwo".encode())
    assert answer.code == 0, answer.err
    assert [text[: len(prefix)] for text in answer.out.split("\n")] == [prefix, prefix, ""]
    assert cli("attention", "translation", *opened, "--out", "a", stdin="one 漢".encode()).code == 0
    says = ["the vocabulary of the model cannot write", "漢字"]
    refused("translate", *opened, "--prefix", "漢字", says=says, stdin=b"\xff")
    refused("translate", *opened, "--require", "漢字", says=says, stdin=b"\xff")


def test_documents_terms_and_alignments(
    cli: Any, refused: Any, english_checkpoint: Path, tmp_path: Path
) -> None:
    opened = ["translate", "--checkpoint", english_checkpoint, "--device", "cpu"]
    page = tmp_path / "a.html"
    page.write_text('<p>sieben <b>zwei</b></p><p id="x">neun</p>', encoding="utf-8")
    files = ["--document", page, "--out", tmp_path / "b.html"]
    answer = cli(*opened, *files)
    assert answer.code == 0, answer.err
    assert "b.html: 2 blocks of text translated" in answer.err
    written = (tmp_path / "b.html").read_text("utf-8")
    assert [written.count(tag) for tag in ("<b>", "</b>", '<p id="x">')] == [1, 1, 1]
    refused(*opened, *files, says=["b.html exists", "--overwrite"])
    assert cli(*opened, *files, "--overwrite").code == 0
    (tmp_path / "g.tsv").write_text("neun\tZürich\n", encoding="utf-8")
    answer = cli(*opened, *files, "--overwrite", "--glossary", tmp_path / "g.tsv")
    assert '<p id="x">' in (text := (tmp_path / "b.html").read_text("utf-8"))
    assert "Zürich" in text
    page.write_text("<p>sieben", encoding="utf-8")
    assert cli(*opened, *files, "--overwrite").code == 0
    page.write_text("<p>sieben <b", encoding="utf-8")
    refused(*opened, *files, "--overwrite", says=["a.html is damaged", "inside a tag"])
    for options, says in [
        (["--document", page], ["document and out"]),
        (["--document", tmp_path / "c.html", "--out", "x"], ["c.html does not exist"]),
        ([*files, "--terms", "true"], ["of lines"]),
        ([*files, "--overwrite", "--n_best", 2], ["document writes one translation"]),
        (["--glossary", tmp_path / "c.tsv"], ["c.tsv does not exist"]),
        (["--alignments", "true", "--keep", "true"], ["alignments", "without keep"]),
    ]:
        refused(*opened, *options, says=says, stdin=b"\xff")
    stdin = b"sieben ||| sieben=seven x\n\nzwei ||| \n"
    answer = cli(*opened, "--terms", "true", "--alignments", "true", stdin=stdin)
    assert answer.code == 0, answer.err
    first, blank, last = (line.split("\t") for line in answer.out.split("\n")[:-1])
    assert "seven x" in first[0]
    assert blank == ["", ""]
    assert all(pair.startswith("0-") for pair in last[1].split())
    refused(*opened, "--terms", "true", stdin=b"a ||| b\n", says=["expected term=translation"])
