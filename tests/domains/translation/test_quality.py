"""What sentence pairs look like: what is odd is counted, what is usual is not."""

from __future__ import annotations

import random

import pytest

from triptych.domains.translation.quality import N_USUAL, swapped_pairs, table

Pairs = list[tuple[str, str]]
WORDS = {
    "en": ["the", "house", "with", "where", "white", "three", "now", "why", "high", "water"],
    "de": ["das", "zimmer", "zwischen", "und", "schön", "jetzt", "kann", "groß", "für", "stark"],
}


def pairs(count: int, seed: int = 0) -> Pairs:
    """Different pairs of two languages whose lengths go together."""
    drawn, found = random.Random(seed), []
    for _ in range(count):
        words = [drawn.randrange(10) for _ in range(drawn.randrange(4, 25))]
        found.append(tuple(" ".join(WORDS[side][w] for w in words) for side in ("en", "de")))
    return found  # type: ignore[return-value]


def test_usual_pairs_have_their_number_alone() -> None:
    assert len(table({"train": pairs(700), "test": pairs(150, 1)})) == N_USUAL
    assert len(table({"train": []})) == N_USUAL
    same_lengths = [(f"line {n:03}", f"zeile {n:03}") for n in range(200)]
    assert len(table({"train": same_lengths})) == N_USUAL


def test_copies_repetitions_empty_sides_and_lengths() -> None:
    usual = pairs(300)
    odd: Pairs = [
        *usual[:30], *((a, a.title()) for a, _ in usual[30:50]), ("", "leer"), ("99", "99"),
        ("a word", " ".join(WORDS["de"] * 4)),
    ]  # fmt: skip
    first, *lines = table({"train": [*usual, *odd], "test": usual[:5]})
    assert first.split() == ["train", "test", "all"]
    found = {" ".join(line.split()[:-3]): [int(n) for n in line.split()[-3:]] for line in lines}
    assert found["sentence pairs"] == [353, 5, 358]
    assert found["both sides equal"] == [20, 0, 20]
    assert sorted(train for train, *_ in found.values()) == [1, 1, 20, 30, 353]


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_swapped_sides(share: float) -> None:
    drawn, usual = random.Random(1), pairs(1000)
    places = {n for n in range(1000) if drawn.random() < share}
    mixed = [pair[::-1] if n in places else pair for n, pair in enumerate(usual)]
    found = set(swapped_pairs(mixed))
    assert len(found & places) > 0.8 * len(places)
    assert not found - places


def test_shifted_and_unrelated_lines() -> None:
    usual = pairs(1500)
    targets = [target for _, target in usual]
    lost = [*targets[:600], *targets[601:], "am Ende"]
    told = table({"train": [(a, b) for (a, _), b in zip(usual, lost, strict=True)]})[-1]
    assert "from line 501 on" in told
    assert "shifted by 1" in told
    random.Random(0).shuffle(targets)
    unrelated = [(a, b) for (a, _), b in zip(usual, targets, strict=True)]
    assert "hardly go together" in table({"train": unrelated})[-1]
