"""Longest runs shared with training pieces, against a search from the definition."""

import numpy as np
import pytest

from triptych.domains.music.statistics import NamedPiece, compare_with_training, longest_shared_runs
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import END

CHORALES, EVENTS = ChoraleTokenizer(), EventTokenizer()


def array(*values):
    return np.array(values, dtype=np.int64)


def from_the_definition(piece, training):
    """Length of the longest common run, by trying every pair of starts."""
    best = 0
    for other in training:
        for a in range(len(piece)):
            for b in range(len(other)):
                n = 0
                while a + n < len(piece) and b + n < len(other) and piece[a + n] == other[b + n]:
                    n += 1
                best = max(best, n)
    return best


def check(pieces, training):
    runs = longest_shared_runs(pieces, training)
    assert len(runs) == len(pieces)
    for piece, (length, source) in zip(pieces, runs, strict=True):
        assert length == from_the_definition(piece, training)
        assert length == 0 or length == from_the_definition(piece, [training[source]])


@pytest.mark.parametrize("n_symbols", [1, 2, 3, 40])
@pytest.mark.parametrize("seed", range(6))
def test_the_run_is_the_longest_one(seed, n_symbols):
    random = np.random.default_rng(seed)

    def rows(count):
        sizes = random.integers(0, 30, count)
        return [random.integers(-3, n_symbols - 3, size) for size in sizes]

    check(rows(7), rows(9))


def test_planted_runs_are_found_where_they_are():
    random = np.random.default_rng(1)
    training = [random.integers(0, 1000, 50) for _ in range(4)]
    pieces = [random.integers(1000, 2000, 60) for _ in range(3)]
    pieces[1][20:37] = training[2][33:50]  # up to the end of the training piece
    pieces[2][:9] = training[0][:9]
    none, end, start = longest_shared_runs(pieces, training)
    assert none[0] == 0
    assert (end, start) == ((17, 2), (9, 0))


def test_a_run_does_not_cross_from_piece_to_piece():
    check([array(1, 2, 3, 4)], [array(9, 1, 2), array(3, 4, 9)])
    check([array(1, 2), array(3, 4)], [array(1, 2, 3, 4)])
    check([array(2, 3)], [array(1), array(2), array(3)])
    check([array(), array(5)], [array(), array(5, 5)])


def test_equal_pieces_share_everything():
    piece = np.random.default_rng(0).integers(0, 47, 300)
    assert longest_shared_runs([piece], [piece[:-1], piece]) == [(300, 1)]


def chorale(name, grid):
    return NamedPiece.of(name, CHORALES.encode(np.array(grid)), CHORALES)


def test_a_transposed_passage_is_shared_as_intervals():
    random = np.random.default_rng(3)
    theme = np.sort(random.integers(45, 75, (20, 4)))[:, ::-1]
    new = np.sort(random.integers(45, 75, (10, 4)))[:, ::-1]
    training = [chorale("old", np.concatenate([new + 1, theme]))]
    groups = {"samples": [chorale("copy", theme + 3)]}
    found = compare_with_training(groups, training)
    tokens, intervals = found["tokens"]["samples"], found["intervals"]["samples"]
    n_notes = len(groups["samples"][0].notes)
    assert intervals["max"] == intervals["mean"] == n_notes - 1
    assert tokens["max"] < 8
    run = intervals["runs"][0]
    assert (run["piece"], run["training_piece"]) == ("copy", "old")


def test_a_copied_passage_is_shared_as_tokens():
    random = np.random.default_rng(3)
    old, new = (random.integers(45, 75, (30, 4)) for _ in range(2))
    new[5:25] = old[8:28]
    pieces = {"samples": [chorale("copy", new)], "test": [chorale("same", old)]}
    found = compare_with_training(pieces, [chorale("old", old)])
    run = found["tokens"]["samples"]["runs"][0]
    assert 80 <= run["length"] <= 84
    assert found["tokens"]["test"]["max"] == 120


def test_a_performance_ends_at_its_end():
    tokens = array(60, 355, 188, END, END)
    piece = NamedPiece.of("a", tokens, EVENTS)
    assert piece.tokens.tolist() == [60, 355, 188]
    assert piece.notes.release.tolist() == [100]
    empty = NamedPiece.of("b", array(END, END), EVENTS)
    found = compare_with_training({"samples": [empty]}, [piece])
    assert found["tokens"]["samples"]["runs"] == [{"piece": "b", "length": 0}]
