"""Summaries: documents from docstrings, splits by package, ROUGE and its baselines."""

from __future__ import annotations

from pathlib import Path

import pytest

from triptych.domains import docstrings
from triptych.domains.translation import docstring_summaries
from triptych.domains.translation.docstring_summaries import DocstringSummaries
from triptych.domains.translation.rouge import rouge, rouge_of_baselines
from triptych.domains.translation.sources import TabSeparated
from triptych.domains.translation.synthetic import ReversedSentences

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
    for name, text in {
        "aone": MODULE,
        "btwo": OTHER,
        "cthree": MODULE.replace("leaf", "bud"),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "tools.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    docstrings._read_package.cache_clear()
    docstring_summaries._documents.cache_clear()


@pytest.mark.usefixtures("packages")
def test_documents_are_cut_after_so_many_words() -> None:
    whole = DocstringSummaries(train=["aone"], validation=["btwo"], test=["cthree"])
    cut = DocstringSummaries(train=["aone"], validation=["btwo"], test=["cthree"], max_words=5)
    for split in whole.splits():
        pairs = [(" ".join(text.split()[:5]), summary) for text, summary in whole.pairs(split)]
        assert cut.pairs(split) == pairs != whole.pairs(split)


@pytest.mark.usefixtures("packages")
def test_a_pair_is_the_rest_of_a_docstring_and_its_first_sentence() -> None:
    source = DocstringSummaries(train=["aone"], validation=["btwo"], test=["cthree"])
    train = source.pairs("train")
    assert (
        "The leaf is the smallest number that is free. The tree itself does not change at all. "
        "It has as many roots as before.",
        "Return the tree with one more leaf.",
    ) in train
    assert all("number of leaves" not in summary for _, summary in train)  # no document


@pytest.mark.usefixtures("packages")
def test_no_document_and_no_summary_is_in_two_splits() -> None:
    source = DocstringSummaries(train=["aone"], validation=["btwo"], test=["cthree"])
    splits = {split: source.pairs(split) for split in source.splits()}
    texts = {split: {text for pair in pairs for text in pair} for split, pairs in splits.items()}
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]
    assert [summary for _, summary in splits["validation"]] == [
        "Return the tree without its leaves."
    ]
    assert any("same in two packages" in document for document, _ in splits["test"])
    assert source.pairs("train") == splits["train"]  # the same in every run


@pytest.mark.usefixtures("packages")
def test_a_module_is_one_document_of_all_its_docstrings() -> None:
    source = DocstringSummaries(train=["aone"], validation=["btwo"], test=[], document="module")
    ((document, summary),) = source.pairs("train")
    assert summary == "Tools for trees and graphs of numbers."
    assert "They return lists" in document
    assert "Return the number of leaves in a tree." in document


def test_a_package_in_two_splits_is_refused() -> None:
    with pytest.raises(ValueError, match="share the packages numpy"):
        DocstringSummaries(train=["numpy", "scipy"], test=["numpy"])


def test_rouge_is_that_of_its_definition() -> None:
    """One of three words in common, no pair of words: F1 = 2 (1/3)(1/3) / (2/3) = 1/3."""
    found = rouge(["returns one leaf"], ["a small leaf"])
    assert found == pytest.approx({"rouge1": 100 / 3, "rouge2": 0.0, "rougeL": 100 / 3}, abs=1e-4)
    found = rouge(["the tree has leaves"], ["the leaves has tree"])  # subsequence of 2 of 4 words
    assert found == pytest.approx({"rouge1": 100, "rouge2": 0, "rougeL": 50}, abs=1e-4)


def test_the_baselines_copy_a_sentence_of_the_document() -> None:
    found = rouge_of_baselines(["One tree grows. Two trees fall."], ["One tree grows."])
    assert found["lead-1"]["rouge2"] == pytest.approx(100)
    assert set(found) == {"lead-1", "random sentence"}


def test_summaries_are_pairs_in_one_natural_language() -> None:
    shares = {"split_column": None, "validation_share": 0.1}
    assert TabSeparated(source_language="en", target_language="en-GB", **shares).of_summaries()
    assert not TabSeparated(source_language="ko", target_language="en", **shares).of_summaries()
    assert not ReversedSentences().of_summaries()
