"""Questions and answers for a chatbot, out of the package chatterbot-corpus.

Writes tables with the columns `question` and `answer`: train.tsv has each question as it is and in
small letters without punctuation; validation.tsv and test.tsv have questions of train.tsv in other
words, half each; unseen.tsv has other questions. A question in other words is in small letters and
has a contraction more or less (what's, what is) or, without one, a word less. baseline.tsv has the
share of questions whose answer is that of the training question with the most common words.

Each turn of a dialogue answers the turn before it. A question has the first of its answers alone.
The corpus is written by its users, and has the BSD licence.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import yaml

from triptych.errors import UserError, library
from triptych.files.splits import split_by_hash
from triptych.types import Checked, FractionBelowOne, PositiveInt

HEADER = ("question", "answer")
CONTRACTIONS = {
    "what's": "what is", "who's": "who is", "you're": "you are", "i'm": "i am", "it's": "it is",
    "don't": "do not", "can't": "can not", "doesn't": "does not", "isn't": "is not",
}  # fmt: skip
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Options(Checked):
    """What is read and how it is divided."""

    language: str = "english"
    """Folder of the corpus, such as english, korean, german or traditionalchinese."""
    held_out: FractionBelowOne = 0.1
    """Share of the questions that are unseen, chosen by hash."""
    max_words: PositiveInt = 20
    """Most words of a question and of an answer; pairs with more are left out."""


def main(options: Options) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
    """Yield the files; raises UserError for a language that the corpus does not have."""
    root = Path(library("chatterbot_corpus", "the recipe dialogues", "chat").__file__).parent
    files = sorted((root / "data" / options.language).glob("*.yml"))
    if not files:
        known = ", ".join(sorted(folder.name for folder in (root / "data").iterdir()))
        raise UserError(f"language is {options.language!r}; expected one of {known}")
    splits: dict[str, Pairs] = {"train": [], "unseen": [], "validation": [], "test": []}
    pairs = list(pairs_of(files, options.max_words))
    asked = {" ".join(words_of(question)) for question, _ in pairs}
    for question, answer in pairs:
        key = question.encode()
        seen = split_by_hash(key, {"unseen": options.held_out}) == "train"
        if not seen:
            splits["unseen"].append((question, answer))
            continue
        plain, other = " ".join(words_of(question)), in_other_words(question)
        splits["train"] += [(each, answer) for each in dict.fromkeys((question, plain)) if each]
        if other not in asked:
            half = split_by_hash(b"half" + key, {"test": 0.5})
            splits["test" if half == "test" else "validation"].append((other, answer))
    for split, rows in splits.items():
        yield f"{split}.tsv", [HEADER, *rows]
    scores = ((split, nearest_share(splits["train"], splits[split])) for split in splits)
    yield "baseline.tsv", [("split", "exact_match"), *((s, f"{x:.4f}") for s, x in scores)]


def pairs_of(files: Iterable[Path], most: int) -> Iterator[tuple[str, str]]:
    """Yield questions and answers of one line each, the first answer of each question."""
    seen = set()
    for file in files:
        for dialogue in yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"]:
            turns = [str(turn).strip() for turn in dialogue]
            for pair in pairwise(turns):
                short = all(turn and "\n" not in turn and "\t" not in turn for turn in pair)
                short = short and max(len(turn.split()) for turn in pair) <= most
                if short and (key := " ".join(words_of(pair[0]))) not in seen:
                    seen.add(key)
                    yield pair


def words_of(text: str) -> list[str]:
    """Return the words of a text in small letters, without punctuation."""
    return re.findall(r"[\w'’]+", text.lower())


def in_other_words(question: str) -> str:
    """Return a question in other words, the same ones at each call."""
    words = words_of(question)
    text = " ".join(words).replace("’", "'")
    for short, long in CONTRACTIONS.items():
        for before, after in ((short, long), (long, short)):
            if re.search(rf"\b{before}\b", text):
                return re.sub(rf"\b{before}\b", after, text)
    if len(words) > 3:
        words.pop(random.Random(question).randrange(len(words)))
    return " ".join(words)


def nearest_share(train: Pairs, asked: Pairs) -> float:
    """Return the share of questions that have the answer of the training question most like them.

    The likeness of two questions is the number of their common words over that of all their words.
    """
    known = [({*words_of(question)}, answer) for question, answer in train]
    right = 0
    for question, answer in asked:
        words = {*words_of(question)}
        likeness = [len(words & own) / max(1, len(words | own)) for own, _ in known]
        right += known[likeness.index(max(likeness))][1] == answer
    return right / max(1, len(asked))
