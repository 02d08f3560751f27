"""Questions about docstrings of installed packages, and where their answers stand.

Writes SPLIT.tsv for each split (train, validation, test) with a question, a docstring as one line,
the answer, and the number of its first character there. The questions are made from the sections
of numpydoc's form:

- "What is the type of axis?": the type behind the name of a parameter;
- "What is axis?": the first sentence about it;
- "What is the default of axis?": its default;
- "What is returned?", "What is the type of what is returned?";
- "When is ValueError raised?": the first sentence about it.

Each split has packages of its own. A docstring that occurs several times is kept where it occurs
first: in the test split, in the validation split, in training. versions.tsv has the versions of the
packages, on which the text depends; the licences of the packages apply to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from triptych.errors import UserError
from triptych.types import Checked, PositiveInt

from ._prose import read_texts, versions

SPLITS = ("test", "validation", "train")
"""In the order in which a docstring of two splits belongs to the first one."""
SECTION = re.compile(
    r"^(Parameters|Returns|Raises)\n-{3,}\n(.*?)(?=^\S[^\n]*\n-{3,}\n|\Z)", re.MULTILINE | re.DOTALL
)
ENTRY = re.compile(r"^(\S[^\n]*)\n((?:[ \t]+[^\n]*\n|\n)+)", re.MULTILINE)
"""Head and description of an entry of a section."""
DEFAULT = re.compile(r"\bdefaults?(?: value)?(?: is|: |=| to| =)? ?`*([^\s,;()`]+)", re.IGNORECASE)
SENTENCE_END = re.compile(r"\.(?=\s|$)")


@dataclass(frozen=True)
class Options(Checked):
    """Packages by split."""

    train: tuple[str, ...] = ("numpy", "scipy", "matplotlib")
    """Packages of the training split."""
    validation: tuple[str, ...] = ("networkx",)
    """Packages of the validation split."""
    test: tuple[str, ...] = ("sklearn",)
    """Packages of the test split."""
    max_words: PositiveInt = 120
    """Most words of a docstring; longer ones are left out."""
    max_answer: PositiveInt = 20
    """Most words of an answer; questions with a longer one are left out."""


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, ...]]]]:
    """Yield the files."""
    seen: set[str] = set()
    for split in SPLITS:
        rows: list[tuple[str, ...]] = []
        for package in getattr(options, split):
            for _, _, text in read_texts(package):
                document = " ".join(text.split())
                if document not in seen and len(document.split()) <= options.max_words:
                    seen.add(document)
                    rows += asked(text, options.max_answer)
        if not rows:
            raise UserError(f"the {split} split has no question; expected more packages")
        yield f"{split}.tsv", rows
    yield "versions.tsv", versions([each for s in SPLITS for each in getattr(options, s)])


def asked(text: str, most: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield question, docstring as one line, answer and its place; most: words of an answer."""
    document = " ".join(text.split())
    for question, answer, place in fields(f"{text}\n"):
        before = " ".join(text[:place].split())
        start = document.find(answer, len(before) - 1 if before else 0)
        if answer and start >= 0 and len(answer.split()) <= most:
            yield question, document, answer, str(start)


def fields(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield question, answer as one line and the first character of the text to look for it."""
    for section in SECTION.finditer(text):
        entries = list(ENTRY.finditer(section[2]))
        for entry in entries:
            head, _, kind = entry[1].partition(":")
            name, kind, first = head.strip(), kind.strip(), first_sentence(entry[2])
            at_head = section.start(2) + entry.start(1)
            at_text = section.start(2) + entry.start(2)
            if section[1] == "Raises":
                yield f"When is {name} raised?", first, at_text
            elif section[1] == "Parameters":
                yield f"What is the type of {name}?", kind, at_head + entry[1].find(":") + 1
                yield f"What is {name}?", first, at_text
                if default := DEFAULT.search(entry[0]):
                    value, at = default[1].rstrip("."), at_head + default.start(1)
                    yield f"What is the default of {name}?", value, at
            elif len(entries) == 1:
                at_kind = at_head + (entry[1].find(":") + 1 if kind else 0)
                yield "What is the type of what is returned?", kind or name, at_kind
                yield "What is returned?", first, at_text


def first_sentence(text: str) -> str:
    """Return the first sentence of a description as one line, without its full stop."""
    paragraph = text.strip().split("\n\n")[0]
    return SENTENCE_END.split(" ".join(paragraph.split()))[0]
