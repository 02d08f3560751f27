"""Phrase pairs: word alignment against a loop over the equations, spans against the definition."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import pytest
import yaml

from triptych.config.schema import to_plain
from triptych.domains.translation.config import DataConfig
from triptych.domains.translation.data import read_training_data
from triptych.domains.translation.sources import TabSeparated
from triptych.tools import recipes

phrases = recipes.load("phrases")
align, compounds, consistent = phrases.align, phrases.compounds, phrases.consistent
phrase_pairs, symmetric = phrases.phrase_pairs, phrases.symmetric

WORDS = {"하나": "one", "둘": "two", "三": "three", "四": "four", "fünf": "five"}


def sentences(count: int) -> list[tuple[str, str]]:
    """Sentences of two to four different words, in the opposite order on the target side."""
    draw = random.Random(0)
    found = []
    for _ in range(count):
        chosen = draw.sample(sorted(WORDS), draw.randint(2, 4))
        target = " ".join(WORDS[word] for word in reversed(chosen))
        found.append((" ".join(chosen) + ".", target.capitalize() + "."))
    return found


def probabilities(
    sources: list[list[int]], targets: list[list[int]]
) -> dict[tuple[int, int], float]:
    """t(target unit | source unit) of IBM model 1, by the equations of Brown et al. (1993)."""
    t: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(phrases.ITERATIONS):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in zip(sources, targets, strict=True):
            for unit in target:
                total = sum(t[unit, other] for other in source)
                for other in source:
                    counts[unit, other] += t[unit, other] / total
        totals: dict[int, float] = defaultdict(float)
        for (_, other), count in counts.items():
            totals[other] += count
        t = defaultdict(float, {pair: count / totals[pair[1]] for pair, count in counts.items()})
    return t


def test_the_alignment_is_that_of_the_equations() -> None:
    draw = random.Random(1)
    sources = [[draw.randrange(6) for _ in range(draw.randint(1, 5))] for _ in range(40)]
    targets = [[draw.randrange(7) for _ in range(draw.randint(1, 5))] for _ in range(40)]
    sources, targets = [[], [3], *sources], [[1, 2], [], *targets]
    t = probabilities(sources, targets)
    found = align(sources, targets)
    assert found[:2] == [set(), set()]
    for source, target, links in zip(sources[2:], targets[2:], found[2:], strict=True):
        assert sorted(position for _, position in links) == list(range(len(target)))
        for s, position in links:
            best = max(t[target[position], other] for other in source)
            assert t[target[position], source[s]] == pytest.approx(best)


def test_both_directions_meet_in_the_middle() -> None:
    forward, backward = {(0, 0), (1, 1), (2, 4), (5, 5)}, {(0, 0), (2, 1), (1, 2), (3, 3), (5, 0)}
    found = symmetric(forward, backward)
    # (1, 1) is next to (0, 0); then (2, 1) and (1, 2) each have one side free, (3, 3) is diagonal
    # to none before them, and (2, 4), (5, 5) and (5, 0) are next to no link.
    assert {(0, 0), (1, 1), (2, 1), (1, 2)} <= found
    assert not found & {(5, 5), (5, 0)}
    assert symmetric({(0, 0)}, {(1, 1), (0, 0), (1, 0)}) == {(0, 0), (1, 0), (1, 1)}
    assert symmetric({(0, 0)}, {(2, 2)}) == set()


def test_consistent_spans_are_those_of_the_definition() -> None:
    draw = random.Random(2)
    for _ in range(60):
        links = {(draw.randrange(6), draw.randrange(6)) for _ in range(draw.randint(1, 7))}
        spans = [(a, b) for a in range(6) for b in range(a, min(6, a + phrases.LONGEST))]
        expected = set()
        for (first, last), (start, end) in product(spans, spans):
            inside = {(s, t) for s, t in links if first <= s <= last and start <= t <= end}
            touching = {(s, t) for s, t in links if first <= s <= last or start <= t <= end}
            edges = {first, last} <= {s for s, _ in inside} and {start, end} <= {
                t for _, t in inside
            }
            if inside == touching and edges:
                expected.add(((first, last), (start, end)))
        assert set(consistent(links)) == expected


def test_words_are_found_in_sentences_and_rare_ones_are_not() -> None:
    pairs = [*sentences(200), ("여섯 하나.", "One six.")]
    found = phrase_pairs(pairs, 3)
    single = {source: target for source, target in found if " " not in source + target}
    assert {source: target.lower() for source, target in single.items()} == WORDS
    assert not any(mark in text for pair in found for text in pair for mark in ".\ufffd")
    assert len(found) > len(single), "phrases of several words too"
    assert ("여섯", "six") in phrase_pairs(pairs, 1)


def test_equal_sentence_pairs_count_once() -> None:
    once = sentences(40)
    assert phrase_pairs(once * 3, 5) == phrase_pairs(once, 5) != phrase_pairs(once, 2)


def test_compounds_join_two_words_of_a_script_without_spaces() -> None:
    words = [("机器", "machine"), ("狗", "dog"), ("人", "person")]
    others = [("학생", "student"), ("大学", "big school"), ("T恤", "shirt")]
    found = compounds([*words, *others], 40)
    possible = {(a + b, f"{x} {y}") for (a, x), (b, y) in permutations(words, 2)}
    assert set(found) == possible
    assert len(found) == 40
    assert found == compounds([*words, *others], 40)
    assert compounds([words[0], *others], 40) == []


def test_short_sentences_lose_their_last_marks() -> None:
    kept = [("안녕?!", "Hi!"), ("我是学生。", "I'm a student."), ("Ja.", "Yes")]
    others = [
        ("Eins. Zwei.", "Two."),  # two sentences
        ("Zwei.", "Mr. Two"),
        ("Ohne Zeichen", "None."),
        ("Dieser Satz ist zu lang.", "Long."),
        ("...", "."),
    ]
    found = [*phrases.unmarked([*kept, *others])]
    assert found == [("안녕", "Hi"), ("我是学生", "I'm a student"), ("Ja", "Yes")]


def test_training_reads_the_sentences_and_the_phrases(tmp_path: Path) -> None:
    rows = "".join(f"{ko}\t{en}\n" for ko, en in sentences(60))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(f"ko\ten\n{rows}", encoding="utf-8")
    source = TabSeparated(
        directory="elsewhere",
        files={"train": ["train.tsv"], "validation": ["dev.tsv"]},
        source_column="ko",
        target_column="en",
    )
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump({"data": {"source": to_plain(source)}}))
    options = phrases.Options(str(settings), directory=str(tmp_path), min_count=3, compounds=5)
    made = {name: list(rows) for name, rows in phrases.main(options)}
    source = replace(source, directory=str(tmp_path))
    assert made["phrases.tsv"] == [phrases.HEADER, *phrase_pairs(source.items("train"), 3)]
    assert len(made["phrases.tsv"]) > 5
    files = []
    for name, rows in made.items():
        (tmp_path / name).write_text(
            "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8"
        )
        files.append(str(tmp_path / name))
    for n in range(4):
        config = DataConfig(source=source, vocabulary_size=400, additional_pairs=tuple(files[:n]))
        added = sum(len(rows) - 1 for rows in list(made.values())[:n])
        assert read_training_data(config, seed=0)[1].n_items == 60 + added


def test_excluded_phrases_are_matched_without_case_and_punctuation(tmp_path: Path) -> None:
    rows = "".join(f"{ko}\t{en}\n" for ko, en in sentences(60))
    (tmp_path / "train.tsv").write_text(f"ko\ten\n{rows}", encoding="utf-8")
    source = TabSeparated(directory=str(tmp_path), source_column="ko", target_column="en")
    settings, excluded = tmp_path / "settings.yaml", tmp_path / "excluded.txt"
    settings.write_text(yaml.safe_dump({"data": {"source": to_plain(source)}}))
    phrase = next(p[0] for p in phrase_pairs(source.items("train"), 3) if " " in p[0])
    excluded.write_text(f"TWO!\n{phrase.replace(' ', ', ').upper()}.\nFünf\n", encoding="utf-8")
    made = []
    for files in ((), (str(excluded),)):
        options = phrases.Options(str(settings), min_count=3, compounds=9, exclude=files)
        made.append({name: list(rows) for name, rows in phrases.main(options)}["phrases.tsv"])
    gone = {"two", phrase.lower(), "fünf"}
    kept = [pair for pair in made[0] if not gone & {text.lower() for text in pair}]
    assert made[1] == kept
    assert gone <= {text.lower() for pair in {*made[0]} - {*kept} for text in pair}
