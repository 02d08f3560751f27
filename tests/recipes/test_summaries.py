"""Summaries: documents from docstrings, splits by package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triptych.tools import recipes

summaries = recipes.load("summaries")
MODULE = '''"""Tools for trees and graphs of numbers.

The functions of this module take lists. They return lists of the same length.
"""

def grow(tree):
    """Return the tree with one more leaf.

    The leaf is the smallest number that is free. The tree itself does not change at all.
    It has as many roots as before.
    """

def same():
    """Return the answer of both packages alike.

    This text is the same in two packages. It must be in one split only.
    """

def short():
    """Return the number of leaves in a tree."""
'''
OTHER = '''def same():
    """Return the answer of both packages alike.

    This text is the same in two packages. It must be in one split only.
    """

def prune(tree):
    """Return the tree without its leaves.

    The roots are kept in their old order. The numbers of the leaves are free again.
    """
'''


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"aone": MODULE, "btwo": OTHER, "cthree": MODULE.replace("leaf", "bud")}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "tools.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))


def pairs(**settings: Any) -> dict[str, list[tuple[str, str]]]:
    """The rows of each file without its header."""
    options = {"train": ("aone",), "validation": ("btwo",), "test": ("cthree",)} | settings
    files = dict(summaries.main(summaries.Options(**options)))
    del files["versions.tsv"]
    return {name.removesuffix(".tsv"): list(rows)[1:] for name, rows in files.items()}


@pytest.mark.usefixtures("packages")
def test_documents_are_cut_after_so_many_words() -> None:
    whole, cut = pairs(max_words=1000), pairs(max_words=5)
    for split in ("train", "validation", "test"):
        expected = [
            (" ".join(text.split()[:5]), summary) for text, summary in whole[f"docstrings.{split}"]
        ]
        assert cut[f"docstrings.{split}"] == expected != whole[f"docstrings.{split}"]
        assert cut[f"modules.{split}"] == whole[f"modules.{split}"], "these are whole"


@pytest.mark.usefixtures("packages")
def test_a_pair_is_the_rest_of_a_docstring_and_its_first_sentence() -> None:
    train = pairs()["docstrings.train"]
    assert (
        "The leaf is the smallest number that is free. The tree itself does not change at all. "
        "It has as many roots as before.",
        "Return the tree with one more leaf.",
    ) in train
    assert all("number of leaves" not in summary for _, summary in train)  # no document


@pytest.mark.usefixtures("packages")
def test_no_document_and_no_summary_is_in_two_splits() -> None:
    found = pairs()
    splits = {split: found[f"docstrings.{split}"] for split in ("train", "validation", "test")}
    texts = {split: {text for pair in rows for text in pair} for split, rows in splits.items()}
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]
    assert [summary for _, summary in splits["validation"]] == [
        "Return the tree without its leaves."
    ]
    assert any("same in two packages" in document for document, _ in splits["test"])


@pytest.mark.usefixtures("packages")
def test_a_module_is_one_document_of_all_its_docstrings() -> None:
    ((document, summary),) = pairs(test=())["modules.train"]
    assert summary == "Tools for trees and graphs of numbers."
    assert "They return lists" in document
    assert "Return the number of leaves in a tree." in document


def test_a_package_in_two_splits_is_refused() -> None:
    with pytest.raises(ValueError, match="share the packages numpy"):
        summaries.Options(train=("numpy", "scipy"), test=("numpy",))


def test_the_baselines_copy_a_sentence_of_the_document() -> None:
    pairs = [("One tree grows. Two trees fall.", "One tree grows.")] * 4
    lead, random = summaries.baselines("docstrings.test", pairs)
    assert lead == ("docstrings.test", "lead-1", "100.00", "100.00", "100.00")
    assert random[1] == "random sentence"
    assert float(random[2]) < 100
