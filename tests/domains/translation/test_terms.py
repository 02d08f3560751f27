"""Terms with a given translation, and alignments of words, by the shipped models."""

from __future__ import annotations

import logging
import random
import re
from pathlib import Path
from typing import Any

import pytest

import triptych
from triptych.domains.translation.alignment import Attended, word_pairs
from triptych.domains.translation.markup import Pair, Word
from triptych.domains.translation.terms import (
    Terms,
    Wanted,
    count_words,
    read_glossary,
    split_terms,
)
from triptych.errors import UserError
from triptych.text.byte_level import Characters

LINES = [
    "Two young girls are playing the guitar on a small stage.",
    "A dog and a black dog run through the snow.",
    "A man in a red shirt is riding a bicycle down the street. A boy watches.",
    "A woman plays.",
]


@pytest.fixture(scope="module")
def translator() -> Any:
    return triptych.load("pretrained:multi30k-en-de", device="cpu")


@pytest.mark.parametrize(
    ("terms", "text", "found"),
    [
        ("ice|ice cream", "Ice  Cream, nice ice.", ["Ice  Cream", "ice"]),
        ("Apple|apple", "An Apple and an apple, an APPLE", ["Apple", "apple", "APPLE"]),
        ("Apple", "an apple", []),
        ("e.g.|C++", "e.g. C++: C++x eXg.", ["e.g.", "C++", "C++"]),
        ("机器|AI", "使用机器和AI的 AIx", ["机器", "AI"]),
        ("학생|AI", "저는 학생입니다 대학생 AI는", ["학생", "AI"]),
        ("", "ice", []),
    ],
)
def test_terms_are_whole_words_the_longest_first(terms: str, text: str, found: list[str]) -> None:
    wanted = Terms({term: f"<{term}>" for term in filter(None, terms.split("|"))}).found(text)
    assert [text[one.start : one.end] for one in wanted] == found
    for one in wanted:
        written = " ".join(text[one.start : one.end].split())
        assert one.translation in (f"<{written}>", f"<{written.lower()}>")


def test_a_glossary_with_a_wrong_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_text("ice  cream\tSpeiseeis \n\nice\tEis\nice\tEis\n", encoding="utf-8")
    assert read_glossary(str(path)) == {"ice cream": "Speiseeis", "ice": "Eis"}
    for content, says in [
        ("ice", "line 1: expected a term"),
        ("a\tb\nice\t", "line 2: expected a term"),
        ("a\tb\tc", "line 1: expected a term"),
        ("a\tb\na\tc", "line 2: 'a' has another"),
        ("", "has no term"),
    ]:
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=says):
            read_glossary(str(path))


def test_terms_beside_a_line() -> None:
    assert split_terms("a  b") == ("a  b", {})
    assert split_terms("a ||| b ||| x y = z=1; c=d;") == ("a ||| b", {"x y": "z=1", "c": "d"})
    assert split_terms("a |||") == ("a", {})
    for wrong in ("a ||| b", "a ||| =b", "a ||| b=;"):
        with pytest.raises(UserError, match="expected term=translation"):
            split_terms(wrong)


@pytest.mark.parametrize("beam", [1, 4])
def test_every_term_is_in_the_translation_as_whole_words(translator: Any, beam: int) -> None:
    draw = random.Random(beam)
    for _ in range(3):
        written = []
        for line in LINES:
            words = draw.sample(sorted({*re.findall(r"\w+", line)}), draw.choice([1, 2, 3]))
            texts = ["".join(draw.choices("aeklß 4", k=draw.randrange(2, 9))) for _ in words]
            written.append(
                [(w, " ".join(f"K{t}x".split())) for w, t in zip(words, texts, strict=True)]
            )
        lines = [
            f"{line} ||| {'; '.join(map('='.join, terms))}"
            for line, terms in zip(LINES, written, strict=True)
        ]
        found = translator.translate(lines, terms=True, keep=True, beam=beam)
        for line, terms, translation in zip(LINES, written, found, strict=True):
            for one in Terms(dict(terms)).found(line):
                assert count_words(one.translation, translation), (line, terms, translation)


def test_a_term_stands_where_its_source_is_read(translator: Any, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("guitar\tKlampfe\ndog\tKöter\nred shirt\tRothemd\n", "utf-8")
    asked: dict[str, Any] = {"glossary": str(tmp_path / "g.tsv")}
    plain = translator.translate(LINES)
    found = translator.translate([*LINES, LINES[1].upper(), ""], **asked)
    assert "Klampfe" in found[0]
    assert "Gitarre" not in found[0]
    assert found[1].count("Köter") == 2
    assert "Hund" not in found[1]
    assert "Rothemd" in found[2]
    assert found[3:] == [plain[3], found[1].upper(), ""]
    # A term of a line goes before the table, and one that is there already changes nothing.
    lines = [f"{LINES[0]} ||| guitar=Gitarre", "A <b>red dog</b>, 10:30."]
    same, marked = translator.translate(lines, terms=True, keep=True, **asked)
    assert same == plain[0]
    assert re.search(r"<b>.*Köter</b>.*10:30", marked)


def test_terms_that_are_not_there_are_counted_once(
    translator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"{LINES[3]} ||| woman=Dame; cat=Katze", f"{LINES[3]} ||| dog=Hund", LINES[0]]
    with caplog.at_level(logging.WARNING):
        translator.translate(lines, terms=True)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("2 terms were not applied")
    assert "Katze" in message
    assert LINES[3] in message


def test_what_the_vocabulary_cannot_write_is_refused(translator: Any, tmp_path: Path) -> None:
    model = triptych.load("pretrained:multi30k-en-de", device="cpu")
    model.vocabulary.target = Characters().build(["abc"], 40, ("<pad>", "<s>", "</s>"))
    (tmp_path / "g.tsv").write_text("dog\tKöter\n", "utf-8")
    with pytest.raises(UserError, match="cannot write 'Köter', the translation of 'dog'"):
        model.translate([], glossary=str(tmp_path / "g.tsv"))
    with pytest.raises(UserError, match="cannot write 'Hut', the translation of 'hat'"):
        model.translate(["a ||| hat=Hut"], terms=True)


def test_a_term_without_a_free_word_stands_before_the_punctuation() -> None:
    attended = Attended("Ein Hund.", [(0, 1), (2, 5)], [(0, 3), (4, 8), (8, 9)], [[1, 0]] * 3)
    assert attended.span(Wanted(2, 5, "X"), 8) == (8, 8)
    spliced = attended.spliced(8, 8, Wanted(2, 5, "X"))
    assert (spliced.text, spliced.targets) == ("Ein Hund X.", [(0, 3), (4, 8), (9, 10), (10, 11)])
    assert spliced.weights[2] == [0, 1]
    assert attended.span(Wanted(2, 5, "X"), 0) == (0, 3)
    assert attended.spliced(4, 8, Wanted(2, 5, "Xy")).text == "Ein Xy."


def test_terms_that_one_word_reads_do_not_replace_each_other() -> None:
    sources, targets = [(0, 1), (2, 5), (6, 9)], [(0, 3), (4, 8), (8, 9)]
    attended = Attended("Ein Hund.", sources, targets, [[1, 0, 0], [0, 1, 1], [0, 0, 0]])
    found = attended.with_terms([Wanted(6, 9, "Yb"), Wanted(2, 5, "Xa")])
    assert found.text == "Ein Xa Yb."
    assert found.pair("a red dog").words[1:3] == [Word(4, 6, 2), Word(7, 9, 6)]
    assert attended.with_terms([Wanted(2, 5, "Hund")]) is attended


def test_alignments_are_those_of_the_translation(translator: Any) -> None:
    lines = [*LINES, "A man plays the guitar.", "", "A MAN PLAYS", "A dog. " * 40]
    found = translator.translate(lines, alignments=True)
    assert [one.text for one in found] == translator.translate(lines)
    for line, one in zip(lines, found, strict=True):
        assert {j for _, j in one.pairs} == {*range(len(one.text.split()))}
        assert {i for i, _ in one.pairs} <= {*range(len(line.split()))}
    assert found[4].text == "Ein Mann spielt Gitarre."
    assert {(1, 1), (2, 2), (4, 3)} <= {*found[4].pairs}
    assert found[5].pairs == []
    places = [i for i, j in found[7].pairs]
    assert places == sorted(places), "sentences stay in their order"


def test_each_chinese_character_is_a_word_of_an_alignment() -> None:
    words = [Word(0, 1, 3), Word(2, 4, 2), Word(4, 5, 0), Word(6, 7, 0)]
    assert word_pairs(Pair("我 爱你", "I lo! x", words)) == [(0, 2), (1, 1), (2, 0)]


@pytest.mark.parametrize("option", [{"terms": True}, {"alignments": True}, {"glossary": "x"}])
@pytest.mark.parametrize("other", [{"n_best": 2}, {"prefix": "A"}, {"sample": True}])
def test_options_that_do_not_go_together(
    option: dict[str, Any], other: dict[str, Any], translator: Any
) -> None:
    with pytest.raises(UserError, match="".join(option)):
        translator.translate(["A dog."], **option, **other)


def test_an_average_aligns_by_its_first_model(translator: Any) -> None:
    averaged = translator.averaged(translator)
    lines = ["A <b>man</b> plays.", "A dog runs."]
    assert averaged.translate(lines, keep=True) == translator.translate(lines, keep=True)
