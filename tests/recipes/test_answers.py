"""Questions about docstrings: what is asked, where the answers stand, the splits."""

from __future__ import annotations

from pathlib import Path

import pytest

from triptych.errors import UserError
from triptych.tools import recipes

answers = recipes.load("answers")
DOCSTRING = """Return the sum of a list, int by int.

Parameters
----------
values : list of int
    Numbers to add. There may be none.
start, scale : int, default: 2
    Number to begin with (see `add`).

Returns
-------
total : int
    The sum. It may be large.

Raises
------
ValueError
    If a number is negative.

Notes
-----
scale : no parameter
    of this section.
"""
EXPECTED = [
    ("What is the type of values?", "list of int"),
    ("What is values?", "Numbers to add"),
    ("What is the type of start, scale?", "int, default: 2"),
    ("What is start, scale?", "Number to begin with (see `add`)"),
    ("What is the default of start, scale?", "2"),
    ("What is the type of what is returned?", "int"),
    ("What is returned?", "The sum"),
    ("When is ValueError raised?", "If a number is negative"),
]


def test_the_fields_of_a_docstring_are_asked_for_where_they_stand() -> None:
    rows = list(answers.asked(DOCSTRING, 20))
    assert [(question, answer) for question, _, answer, _ in rows] == EXPECTED
    for question, document, answer, place in rows:
        assert document == " ".join(DOCSTRING.split())
        before, after = document[: int(place)], document[int(place) :]
        assert after.startswith(answer)
        if question == "What is the type of what is returned?":
            assert before.endswith("total : "), "not where the word stands first"
    assert [row[0] for row in answers.asked(DOCSTRING, 2)] == [
        question for question, answer in EXPECTED if len(answer.split()) <= 2
    ]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"aone": DOCSTRING, "btwo": DOCSTRING, "cthree": DOCSTRING.replace("sum", "mean")}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'def f():\n    """{text}"""\n')
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("packages")
def test_each_docstring_is_in_one_split() -> None:
    options = answers.Options(train=("cthree",), validation=("btwo",), test=("aone",))
    with pytest.raises(UserError, match="the validation split has no question"):
        [*answers.main(options)]  # its docstring is that of the test split
    options = answers.Options(train=("btwo", "cthree"), validation=("cthree",), test=("aone",))
    with pytest.raises(UserError, match="the train split has no question"):
        [*answers.main(options)]
    options = answers.Options(train=("aone",), validation=("cthree",), test=("aone",), max_words=9)
    with pytest.raises(UserError, match="the test split has no question"):
        [*answers.main(options)]
