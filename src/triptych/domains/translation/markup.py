"""Tags around the words of a text, and their places in its translation. No torch.

The tags of a text form a tree: elements, which a tag opens and one closes, and tags that stand
alone. The translation has the same tree. An element stands around the words whose source words it
contains; where words of its neighbours are between them, around the longest run without such words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

HIDDEN = 0xF0000
HIDDEN_RUN = "[\U000f0000-\U000f00ff]+"
"""Text that `hidden` has returned: bytes as characters that no text has, for private use."""


def hidden(text: str) -> str:
    """Return text, such as code, as characters that stand for it until `written` shows it."""
    return "".join(chr(HIDDEN + byte) for byte in text.encode())


class Word(NamedTuple):
    """A word of a translation, and where in the source the word is that it reads most."""

    start: int
    end: int
    source: int


@dataclass(frozen=True)
class Pair:
    """A source and its translation."""

    source: str
    text: str
    words: list[Word]
    gaps: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Parts of the source that were not translated, and of the text that stand for them: two ends
    each."""

    def spliced(self, start: int, end: int, text: str) -> Pair:
        """Return the pair with another text in place of a part of the translation: one word."""
        longer = len(text) - (end - start)
        before = [word for word in self.words if word.start < start]
        within = [word.source for word in self.words if start <= word.start < end]
        after = [
            word._replace(start=word.start + longer, end=word.end + longer)
            for word in self.words
            if word.start >= max(start, end)
        ]
        new = [Word(start, start + len(text), source) for source in within[:1] if text]
        return Pair(
            self.source, self.text[:start] + text + self.text[end:], [*before, *new, *after]
        )


class Tag(NamedTuple):
    """A tag of a text, as it is written."""

    place: int
    """Number of characters before it."""
    text: str
    name: str = ""
    """Tags of a pair have one name."""
    side: int = 0
    """1 for a tag that opens an element, -1 for one that closes it, 0 for one that stands alone."""
    breaks: bool = False
    """Whether no sentence goes on behind it."""


@dataclass
class _Node:
    """An element, or a tag that stands alone; numbers of its tags."""

    start: int
    end: int | None = None
    children: list[_Node] = field(default_factory=list)

    def tags(self) -> list[int]:
        inner = [tag for child in self.children for tag in child.tags()]
        return [self.start, *inner, *([] if self.end is None else [self.end])]


@dataclass(frozen=True)
class Marked:
    """A text and its tags, in their order."""

    text: str
    tags: list[Tag] = field(default_factory=list)

    def __str__(self) -> str:
        return self.written(str)

    def written(self, escape: Callable[[str], str]) -> str:
        """Return the text with its tags; escape: of a part of the text between tags."""
        joined, last = "", 0
        for tag in self.tags:
            joined, last = joined + escape(self.text[last : tag.place]) + tag.text, tag.place
        joined += escape(self.text[last:])
        return re.sub(
            HIDDEN_RUN, lambda run: bytes(ord(each) - HIDDEN for each in run[0]).decode(), joined
        )

    def cuts(self) -> list[int]:
        """Return the places where the text is cut: breaks, and tags without a partner.

        So tags whose partners are in another text keep their order; a single tag has none.
        """
        one = sum(tag.side != 0 for tag in self.tags) < 2
        alone = (self.tags[number] for number in _alone(self._tree()))
        return sorted({tag.place for tag in alone if tag.breaks or (tag.side and not one)})

    def of(self, pair: Pair) -> Marked:
        """Return the translation of the text with all tags, in the same tree."""
        placed = self._placed(self._tree(), 0, len(pair.text), pair, pair.words)
        return Marked(pair.text, [self.tags[number]._replace(place=at) for number, at in placed])

    def _tree(self) -> list[_Node]:
        open_ = [_Node(-1)]

        def leave() -> None:
            node = open_.pop()  # it has no partner: what follows it does not belong to it
            open_[-1].children += node.children
            node.children = []

        for number, tag in enumerate(self.tags):
            names = [self.tags[node.start].name for node in open_[1:]]
            if tag.side < 0 and tag.name in names:
                while self.tags[open_[-1].start].name != tag.name:
                    leave()
                open_.pop().end = number
                continue
            node = _Node(number)
            open_[-1].children.append(node)
            if tag.side > 0:
                open_.append(node)
        while len(open_) > 1:
            leave()
        return open_[0].children

    def _placed(
        self, nodes: Sequence[_Node], low: int, high: int, pair: Pair, words: Sequence[Word]
    ) -> list[tuple[int, int]]:
        """Return the numbers and places of tags within a part of a translation, in their order."""
        ends = {node.start: node.end for node in nodes if node.end is not None}
        owners = [
            next(
                (
                    start
                    for start, end in ends.items()
                    if self.tags[start].place <= word.source < self.tags[end].place
                ),
                None,
            )
            for word in words
        ]
        runs = {start: _longest_run(owners, start) for start in ends if start in owners}
        spans = {n: (words[run[0]].start, words[run[-1]].end) for n, run in runs.items()}
        places = {
            node.start: min(max(low, _before(self.tags[node.start].place, pair, words, high)), high)
            for node in nodes
            if node.start not in spans
        }
        for start, end in ends.items():  # no word reads it: it is around the next one
            if start in places and self.text[self.tags[start].place : self.tags[end].place].strip():
                place = self.tags[start].place
                for word in words:
                    cut = any(place < gap[0] <= word.source for gap in pair.gaps)
                    taken = any(a < word.end and word.start < b for a, b in spans.values())
                    if word.start == places[start] and not (cut or taken):
                        spans[start] = word[:2]
        items: list[tuple[int, bool, int, list[tuple[int, int]]]] = []
        for node in nodes:
            if node.start in spans:
                start, end = spans[node.start]
                inside = [word for word in words if start <= word.start < end]
                inner = self._placed(node.children, start, end, pair, inside)
                placed = [(node.start, start), *inner, (ends[node.start], end)]
                items.append((start, True, node.start, placed))
                continue
            place = places[node.start]
            for start, end in spans.values():
                place = end if start < place < end else place
            items.append((place, False, node.start, [(n, place) for n in node.tags()]))
        return [each for *_, placed in sorted(items, key=lambda item: item[:3]) for each in placed]


def _alone(nodes: Iterable[_Node]) -> list[int]:
    inner = [number for node in nodes for number in _alone(node.children)]
    return [*inner, *(node.start for node in nodes if node.end is None)]


def _longest_run(owners: Sequence[int | None], owner: int) -> list[int]:
    """Return the numbers of most words of an owner that have no words of others between them."""
    runs: list[list[int]] = [[]]
    for number, each in enumerate(owners):
        if each == owner:
            runs[-1].append(number)
        elif each is not None:
            runs.append([])
    return max(runs, key=len)


def _before(place: int, pair: Pair, words: Sequence[Word], high: int) -> int:
    """Return where the translation of what follows a place of the source begins, in its part."""
    stop = len(pair.source)
    for start, end, begin, after in pair.gaps:
        if start <= place <= end:
            return min(begin + place - start, after)
        if start > place:
            stop, high = start, min(begin, high)
            break
    if not words:
        return place
    following = [word for word in words if place <= word.source < stop]
    return min(following, key=lambda word: (word.source, word.start)).start if following else high
