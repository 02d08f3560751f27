"""Tags in translations: each once, in the same tree, whatever order the words have."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from triptych.domains.translation.domain import TranslationRequest
from triptych.domains.translation.kept import Translator, marked_line
from triptych.domains.translation.markup import Marked, Pair, Word
from triptych.domains.translation.terms import Terms


class Shuffling(Translator):
    """Translates by shuffling words, of which some read another one, or are lost."""

    draw = random.Random(0)

    def _parts(self, texts: Sequence[str], terms: Sequence[Terms]) -> list[Pair]:
        return [self.pair(text) for text in texts]

    def pair(self, source: str) -> Pair:
        found = list(re.finditer(r"\w+", source))
        chosen = self.draw.choices(found, k=len(found)) if self.draw.random() < 0.5 else found
        chosen = self.draw.sample(chosen, len(chosen))[: self.draw.choice([1, 99])]
        text, words = "", []
        for one in chosen:
            words.append(Word(len(text), len(text) + len(one[0]), one.start()))
            text += f"{one[0]} "
        return Pair(source, text[:-1], [w for w in words if self.draw.random() < 0.9])


@pytest.fixture
def translator() -> Translator:
    settings = SimpleNamespace(target_language="de")
    model: Any = SimpleNamespace(name_unread=lambda lines: None, settings=settings)
    return Shuffling(model, TranslationRequest(keep=True), Terms({}))


def markup(draw: random.Random, depth: int = 0) -> str:
    """Random text with elements, each of a name of its own."""
    parts = []
    for _ in range(draw.randrange(1, 5)):
        kind, name = draw.random(), f"n{draw.randrange(10**9)}"
        if kind < 0.3 and depth < 3:
            parts.append(f"<{name}>{markup(draw, depth + 1)}</{name}>")
        elif kind < 0.4:
            parts.append(f"<{name}/>")
        else:
            parts.append(draw.choice(["dog", "a. Cat", "über", " ", "", "x y"]))
    return draw.choice(["", " "]).join(parts)


def parents(text: str) -> dict[str, str]:
    """The element in which each tag stands; fails where one is closed that is not the last one."""
    open_, found = [""], dict[str, str]()
    for tag in re.findall(r"<.*?>", text):
        name = tag.strip("</>")
        if tag.startswith("</"):
            assert open_.pop() == name
            continue
        assert name not in found, "a tag stands twice"
        found[name] = open_[-1]
        if not tag.endswith("/>"):
            open_.append(name)
    assert open_ == [""]
    return found


@pytest.mark.parametrize("sentences", [False, True])
def test_every_tag_is_once_in_the_same_tree(translator: Translator, sentences: bool) -> None:
    draw = random.Random(1)
    trees = 0
    for _ in range(1500):
        source = markup(draw)
        marked = marked_line(source)
        (pair,) = translator.marked([marked], sentences=sentences)
        found = str(marked.of(pair))
        assert parents(found) == parents(source), (source, found)
        assert re.sub(r"<.*?>", "", found) == pair.text
        trees += len(parents(source)) > 2
    assert trees > 500


def test_markup_over_several_lines_stays_one_tree(translator: Translator) -> None:
    draw = random.Random(2)
    for _ in range(1000):
        source = markup(draw)
        places = [m.start() for m in re.finditer(r"<.*?>|\w+|.", source)]
        cut = sorted(draw.sample(places, min(2, len(places))))
        lines = [source[a:b] for a, b in zip([0, *cut], [*cut, len(source)], strict=True)]
        marked = [marked_line(line) for line in lines]
        pairs = translator.marked(marked)
        found = [str(one.of(pair)) for one, pair in zip(marked, pairs, strict=True)]
        if all(sum(tag.side != 0 for tag in one.tags) != 1 for one in marked):
            assert parents("".join(found)) == parents(source), (lines, found)
        for line, translation in zip(lines, found, strict=True):
            tags = [sorted(re.findall(r"<.*?>", text)) for text in (line, translation)]
            assert tags[0] == tags[1]


@pytest.mark.parametrize(
    ("source", "target", "sources", "found"),
    [
        ("a <b>red dog</b> eats", "isst Hund rot", [10, 6, 2], "isst <b>Hund rot</b>"),
        ("<b>a</b> <i>c</i> d", "c a d a", [2, 0, 4, 0], "<i>c</i> <b>a d a</b>"),
        ("<b>a</b> <i>c</i> e", "a c a a e", [0, 2, 0, 0, 4], "a <i>c</i> <b>a a</b> e"),
        ("a <b></b>c<br/> e", "e c a", [4, 2, 0], "<br/>e <b></b>c a"),
        ("<p>a <b>c</b></p>", "c a", [2, 0], "<p><b>c</b> a</p>"),
        ("a <b>c", "c a", [2, 0], "<b>c a"),
    ],
)
def test_tags_stand_around_the_words_that_read_their_content(
    source: str, target: str, sources: list[int], found: str
) -> None:
    marked = marked_line(source)
    words = [
        Word(*m.span(), at) for m, at in zip(re.finditer(r"\w+", target), sources, strict=True)
    ]
    assert str(marked.of(Pair(marked.text, target, words))) == found


def test_a_text_without_words_keeps_its_tags() -> None:
    marked = marked_line("<p><br/> . </p>")
    assert str(marked.of(Pair(marked.text, " . ", [Word(1, 2, 1)]))) == " <p><br/>.</p> "
    assert str(Marked("").of(Pair("", "", []))) == ""
