"""Dialogues for a chatbot: pairs, splits, questions in other words, the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from triptych.errors import UserError
from triptych.tools import recipes

dialogues = recipes.load("dialogues")
TEXT = """
categories: [people]
conversations:
- - What is your name?
  - Otto.
  - A fine name
- - What is your name?
  - Anna.
- - What's the colour of the sky?
  - 1963
- - Show me code
  - |
    first
    second
"""


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "chatterbot_corpus/data/latin"
    folder.mkdir(parents=True)
    (tmp_path / "chatterbot_corpus/__init__.py").write_text("")
    (folder / "people.yml").write_text(TEXT, encoding="utf-8")
    more = "".join(f"- - Do you like the number {n} more?\n  - Number {n}.\n" for n in range(200))
    (folder / "numbers.yml").write_text(f"conversations:\n{more}", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_turn_answers_the_turn_before_and_the_first_answer_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(TEXT, encoding="utf-8")
    assert list(dialogues.pairs_of([tmp_path / "a.yml"], 20)) == [
        ("What is your name?", "Otto."),
        ("Otto.", "A fine name"),
        ("What's the colour of the sky?", "1963"),
    ]
    short = dialogues.pairs_of([tmp_path / "a.yml"], 4)
    assert [question for question, _ in short] == ["What is your name?", "Otto."]


def test_a_question_in_other_words() -> None:
    assert dialogues.in_other_words("What's THAT, Otto?") == "what is that otto"
    assert dialogues.in_other_words("Who is who?") == "who's who"
    assert dialogues.in_other_words("Yes, no!") == "yes no"
    words = ["Do", "robots", "dream", "at", "night"]
    fewer = dialogues.in_other_words(f"{' '.join(words)}?").split()
    assert len(fewer) == 4
    assert fewer in [[w.lower() for w in words[:n] + words[n + 1 :]] for n in range(5)]


@pytest.mark.usefixtures("corpus")
def test_the_splits_and_the_baseline() -> None:
    files = {name: list(rows) for name, rows in dialogues.main(dialogues.Options("latin"))}
    header, *train = files["train.tsv"]
    assert header == ("question", "answer")
    known = {tuple(dialogues.words_of(question)): answer for question, answer in train}
    unseen = files["unseen.tsv"][1:]
    assert 5 < len(unseen) < 50
    assert not {tuple(dialogues.words_of(question)) for question, _ in unseen} & known.keys()
    reworded = files["validation.tsv"][1:] + files["test.tsv"][1:]
    assert not {question for question, _ in reworded} & {question for question, _ in train}
    assert {answer for _, answer in reworded} <= set(known.values())
    assert min(len(files["validation.tsv"]), len(files["test.tsv"])) > 50
    shares = dict(files["baseline.tsv"][1:])
    assert shares["train"] == "1.0000"
    assert shares["unseen"] == "0.0000"
    with pytest.raises(UserError, match="language is 'elvish'; expected one of latin"):
        [*dialogues.main(dialogues.Options("elvish"))]


def test_the_nearest_question_from_the_definition() -> None:
    train = [("a b c", "1"), ("a d", "2"), ("e", "3")]
    asked = [("a b", "1"), ("a d f g", "2"), ("c e", "1"), ("x", "1")]
    # 2/3 and 1/3; 1/6 and 2/4; 1/4 and 1/2, wrong; none, the first
    assert dialogues.nearest_share(train, asked) == 3 / 4
