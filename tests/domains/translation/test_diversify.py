"""Pairs that models add: which side they write, where they stand, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from triptych.config.schema import from_plain
from triptych.domains.translation.corpora import Corpus, Pair, ParallelText
from triptych.domains.translation.diversify import (
    Translate,
    check_directions,
    file_names,
    learnt_what_is_held_out,
    new_pairs,
    write_folder,
)
from triptych.domains.translation.lines import read_lines
from triptych.domains.translation.numbers import NumberWords
from triptych.errors import UserError
from triptych.training.evaluate import Progress

PAIRS = [("a", "x"), ("b", "y"), ("", "z"), ("c", "")]


def of(corpus: Corpus) -> dict[str, list[Pair]]:
    return {split: corpus.pairs(split) for split in corpus.splits()}


def marked(mark: str) -> Translate:
    """Writes a mark behind each line, and nothing but a blank for blank lines and for z."""

    def translate(lines: Sequence[str], *, progress: Progress | None) -> list[str]:
        assert progress is not None
        for done in range(1, len(lines) + 1):
            progress(done, len(lines))
        return [line + mark if line not in ("", "z") else " " for line in lines]

    return translate


def test_forward_models_write_targets_and_backward_models_sources() -> None:
    told: list[tuple[int, int]] = []
    found = new_pairs(
        PAIRS, [marked("1"), marked("2")], [marked("3")], lambda *call: told.append(call)
    )
    assert list(found) == [
        *[("a", "a1"), ("b", "b1"), ("c", "c1")],
        *[("a", "a2"), ("b", "b2"), ("c", "c2")],
        *[("x3", "x"), ("y3", "y")],
    ]
    assert told == [(done, 12) for done in range(1, 13)], "counted over all models"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["val.{language}.gz"], "val.{language}.gz"),
        (["a.{language}", "b.{language}"], "validation.{language}.gz"),
        (["deep/val.{language}"], "validation.{language}.gz"),
        (["val.{language} | other.{language}"], "validation.{language}.gz"),
        (["diversified.{language}.gz"], "validation.{language}.gz"),
        (["train.{language}"], "validation.{language}.gz"),
    ],
)
def test_files_keep_a_plain_name_that_is_theirs_alone(names: list[str], expected: str) -> None:
    files = {"train": ["train.{language}"], "validation": names}
    assert file_names(ParallelText(files=files)) == {
        "train": "train.{language}",
        "validation": expected,
    }


def test_names_that_cannot_be_files_are_numbered() -> None:
    two = ["a.{language}", "b.{language}"]
    files = {"train": ["test.{language}.gz"], "test": two, "diversified": two, "test/2016": two}
    assert list(file_names(ParallelText(files=files)).values()) == [
        "test.{language}.gz",
        *(f"split-{number}.{{language}}.gz" for number in (1, 2, 3)),
    ]


def test_a_folder_holds_every_split_and_the_settings_that_name_them(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "made/new"
    old.mkdir()
    for name, lines in {"train": "a\nb\n", "more": "c\n", "val": "d\n"}.items():
        (old / f"{name}.en").write_text(lines, encoding="utf-8")
        (old / f"{name}.de").write_text(lines.upper(), encoding="utf-8")
    corpus = ParallelText(
        directory=str(old),
        files={"train": ["train.{language}", "more.{language}"], "validation": ["val.{language}"]},
    )
    settings = write_folder(corpus, of(corpus), [("a", "ä")], new)
    assert yaml.safe_load((new / "source.yaml").read_text(encoding="utf-8")) == settings
    made = from_plain(
        ParallelText, settings["data"]["source"]["init_args"], where="the folder's settings"
    )
    assert made.pairs("train") == [("a", "A"), ("b", "B"), ("c", "C"), ("a", "ä")]
    assert made.pairs("validation") == corpus.pairs("validation") == [("d", "D")]
    assert read_lines(new / "val.en") == ["d"], "under its own name"
    assert made.splits() == corpus.splits()
    assert (new / "diversified.en.gz").read_bytes()[4:8] == bytes(4), "no time stands in it"


def test_held_out_sentences_are_written_to_their_split_alone(tmp_path: Path) -> None:
    """A share that is taken by hash would take synthetic sentences from the new files too."""
    (tmp_path / "train.en").write_text("".join(f"{n}\n" for n in range(50)), encoding="utf-8")
    (tmp_path / "train.de").write_text("".join(f"{n}\n" for n in range(50)), encoding="utf-8")
    corpus = ParallelText(
        directory=str(tmp_path), files={"train": ["train.{language}"]}, validation_share=0.3
    )
    settings = write_folder(corpus, of(corpus), [("x", "y")], tmp_path / "new")
    made = from_plain(
        ParallelText, settings["data"]["source"]["init_args"], where="the folder's settings"
    )
    assert made.shares == {}
    assert made.pairs("validation") == corpus.pairs("validation")
    assert made.pairs("train") == [*corpus.pairs("train"), ("x", "y")]
    assert 0 < len(made.pairs("validation")) < 50


@pytest.mark.parametrize(
    ("forward", "backward", "says"),
    [
        ([("en", "en")], [], "both sides of en-en.ckpt are en"),
        (
            [("en", "de"), ("de", "en")],
            [],
            "de-en.ckpt translates de to en; expected en to de, as en-de.ckpt",
        ),
        ([("en", "de")], [("en", "de")], "en-de.ckpt translates en to de; expected de to en"),
    ],
)
def test_models_of_another_direction_are_refused(
    forward: list[tuple[str, str]], backward: list[tuple[str, str]], says: str
) -> None:
    def corpora(pairs: list[tuple[str, str]]) -> list[tuple[str, Corpus]]:
        return [(f"{one}-{other}.ckpt", ParallelText(one, other)) for one, other in pairs]

    with pytest.raises(UserError, match=says):
        check_directions(corpora(forward), corpora(backward))
    check_directions(corpora([("en", "de")]), [("numbers.ckpt", NumberWords("de", "en"))])


def test_backward_models_that_may_know_what_is_held_out_are_told() -> None:
    whole = ParallelText("en", "de")
    shares = ParallelText("en", "de", files={"train": ["a.{language}"]}, test_share=0.1)
    turned = replace(shares, source_language="de", target_language="en")
    assert learnt_what_is_held_out([("f", shares)], []) == ""
    assert learnt_what_is_held_out([("f", whole)], [("b", whole)]) == ""
    for forward, backward in ((whole, turned), (shares, whole), (shares, turned)):
        said = learnt_what_is_held_out([("f", forward)], [("b.ckpt", backward)])
        assert said.startswith("b.ckpt may have been trained on pairs that are held out")
