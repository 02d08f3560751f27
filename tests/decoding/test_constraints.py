"""Constrained search and sampling against all outputs of a tiny model, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from table import END, START, Table, V, complete

from triptych.decoding.beam_search import beam_search
from triptych.decoding.beams import Hypothesis, LengthPenalty
from triptych.decoding.constraints import (
    BEGIN,
    AnyForbids,
    Forbidden,
    ForcedText,
    Lengths,
    NoRepeatedNgrams,
    RequiredPhrases,
)
from triptych.decoding.sampling import LogitsConstraint

CPU = torch.device("cpu")
PENALTIES = [LengthPenalty("none"), LengthPenalty("average"), LengthPenalty("gnmt", 0.6)]
LIMIT = 5
WIDE = 400
"""A beam that keeps every hypothesis of at most LIMIT tokens."""
Words = tuple[int, ...]


def best_of(
    row: int, penalty: LengthPenalty, allowed: Callable[[Words], bool], limit: int = LIMIT
) -> list[tuple[float, Words]]:
    """All allowed outputs with an end and their scores, best first."""
    table = Table([row])
    return sorted(
        (
            (table.log_p(row, words) / penalty(torch.tensor(len(words))).item(), words)
            for words in complete(limit)
            if allowed(words[:-1])
        ),
        reverse=True,
    )


def search(rows: list[int], lengths: Sequence[int], **options: Any) -> list[list[Hypothesis]]:
    table = Table(rows)
    found = beam_search(table, table.state(), start=START, end=END, max_lengths=lengths, **options)  # type: ignore[arg-type]
    return [result.best for result in found]


def wide(row: int, penalty: LengthPenalty, limit: int = LIMIT, **options: Any) -> list[Hypothesis]:
    """The best six of a search that keeps every hypothesis."""
    return search([row], [limit], beam=WIDE, n_best=6, penalty=penalty, **options)[0]


def compare(found: list[Hypothesis], expected: list[tuple[float, Words]], count: int = 6) -> None:
    assert len(expected) > 1
    assert len(found) == min(count, len(expected))
    for hypothesis, (score, words) in zip(found, expected, strict=False):
        assert hypothesis.finished
        assert (*hypothesis.tokens, END) == words
        assert hypothesis.score == pytest.approx(score)  # the model's, without renormalisation


def has_run(words: Words, run: Words) -> bool:
    if run[0] == BEGIN:
        words = (BEGIN, *words)
    return any(words[start : start + len(run)] == run for start in range(len(words)))


def no_repeats(n: int) -> Callable[[Words], bool]:
    def allowed(words: Words) -> bool:
        runs = [words[start : start + n] for start in range(len(words) - n + 1)]
        return len(set(runs)) == len(runs)

    return allowed


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("least", [1, 3])
def test_the_best_of_at_least_so_many_tokens(penalty: LengthPenalty, row: int, least: int) -> None:
    found = wide(row, penalty, constraint=Lengths(least, None, END, V, CPU))
    compare(found, best_of(row, penalty, lambda words: len(words) >= least))


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize(("least", "most"), [(0, 1), (0, 2), (2, 2)])
def test_the_best_that_ends_within_so_many_tokens(row: int, least: int, most: int) -> None:
    penalty = LengthPenalty("average")
    found = wide(row, penalty, constraint=Lengths(least, most, END, V, CPU))
    compare(found, best_of(row, penalty, lambda words: least <= len(words) <= most))


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_best_without_a_repeated_run(row: int, n: int) -> None:
    penalty = LengthPenalty("average")
    found = wide(row, penalty, constraint=NoRepeatedNgrams(n, V))
    compare(found, best_of(row, penalty, no_repeats(n)))


BYTES = [b"", b"", b"a", b"ab"]
"""Of the tokens of the table; start and end have none."""


def text(words: Words) -> bytes:
    return b"".join(BYTES[word] for word in words)


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize(
    ("stem", "rest"),
    [((), b"a"), ((), b"aab"), ((2,), b"a"), ((3, 2), b""), ((3,), b"ab"), ((2,), b"aba")],
)
def test_the_best_text_with_a_prefix(row: int, stem: Words, rest: bytes) -> None:
    """Tokens of the rest are free as long as the text begins with the prefix."""
    penalty = LengthPenalty("gnmt", 0.6)
    constraint = ForcedText(stem, rest, BYTES, CPU)

    def allowed(words: Words) -> bool:
        """Begins with the stem and the text; within the prefix without the textless token 0."""
        if words[: len(stem)] != stem or not text(words).startswith(text(stem) + rest):
            return False
        needed = next(
            t for t in range(len(words) + 1) if len(text(words[:t])) >= len(text(stem) + rest)
        )
        return 0 not in words[len(stem) : needed]

    found = wide(row, penalty, constraint=constraint)
    compare(found, best_of(row, penalty, allowed))


REQUIRED: list[list[list[Words]]] = [
    [[(2,)]],
    [[(3, 3)]],
    [[(2, 3, 2)]],
    [[(2, 2, 3)]],  # begins with a repetition: a longer beginning may follow a shorter one
    [[(0, 2), (3, 2)]],  # either counts
    [[(2, 3), (0,)]],  # of different lengths
    [[(2, 3)], [(3, 0)]],  # two phrases, which may share a token
    [[(BEGIN, 3)], [(2, 2), (BEGIN, 2)]],  # some count at the beginning alone
]


@pytest.mark.parametrize("phrases", REQUIRED, ids=str)
@pytest.mark.parametrize("row", range(2))
@pytest.mark.parametrize("penalty", PENALTIES[1:2], ids=str)
def test_the_best_with_required_phrases(
    phrases: list[list[Words]], row: int, penalty: LengthPenalty
) -> None:
    def allowed(words: Words) -> bool:
        return all(any(has_run(words, run) for run in variants) for variants in phrases)

    found = wide(row, penalty, required=RequiredPhrases(phrases, CPU))
    compare(found, best_of(row, penalty, allowed))


@pytest.mark.parametrize("row", range(4))
def test_all_constraints_at_once(row: int) -> None:
    penalty, limit = LengthPenalty("average"), 6
    constraint = AnyForbids(
        [
            Lengths(4, None, END, V, CPU),
            NoRepeatedNgrams(2, V),
            ForcedText([3], b"a", BYTES, CPU),
            Forbidden([0], V, CPU),
        ]
    )

    def allowed(words: Words) -> bool:
        return (
            len(words) >= 4 and no_repeats(2)(words) and words[0] == 3 and 0 not in words
            and text(words).startswith(b"aba") and has_run(words, (2, 2))
        )  # fmt: skip

    required = RequiredPhrases([[(2, 2)]], CPU)
    found = wide(row, penalty, limit, constraint=constraint, required=required)
    compare(found, best_of(row, penalty, allowed, limit))


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_a_narrow_beam_meets_the_constraints_in_every_row(beam: int) -> None:
    """Rows that stop at different steps leave the batch and take their histories with them."""
    phrases = [[(3, 2, 0)], [(2, 2)]]
    options: dict[str, Any] = {
        "beam": beam,
        "n_best": beam,
        "constraint": AnyForbids([Lengths(6, None, END, V, CPU), NoRepeatedNgrams(3, V)]),
        "required": RequiredPhrases(phrases, CPU),
    }
    rows, lengths = list(range(10)), [12, 20, 9, 16, 30, 11, 25, 14, 10, 18]
    together = search(rows, lengths, **options)
    for row, length, found in zip(rows, lengths, together, strict=True):
        assert found
        assert search([row], [length], **options) == [found]
        for hypothesis in found:
            words = tuple(hypothesis.tokens)  # one that reached the limit has no end
            assert len(words) >= 6
            assert no_repeats(3)(words)
            assert all(has_run(words, run) for variants in phrases for run in variants)
            log_p = Table([row]).log_p(row, (*words, END) if hypothesis.finished else words)
            assert hypothesis.log_probability == pytest.approx(log_p)


def test_constraints_that_nothing_meets_leave_no_hypothesis() -> None:
    constraint = AnyForbids([Forbidden([0, 2, 3], V, CPU), Lengths(1, None, END, V, CPU)])
    assert search([0, 1], [4, 6], beam=2, constraint=constraint) == [[], []]


def test_lacking_tokens_are_those_of_the_definition() -> None:
    for phrases in [*REQUIRED, [[(3, 3, 3, 3)]]]:  # also one longer than what is written
        required = RequiredPhrases(phrases, CPU)

        def slow(words: Words, phrases: list[list[Words]] = phrases) -> int:
            words = (BEGIN, *words)

            def of(run: Words) -> int:
                begun = [n for n in range(min(len(run), len(words) + 1))
                         if words[len(words) - n :] == run[:n]]  # fmt: skip
                return 0 if has_run(words, run) else len(run) - max(begun)

            return sum(min(map(of, variants)) for variants in phrases)

        for length in range(5):
            for words in itertools.product([0, 2, 3], repeat=length):
                values = torch.tensor([words], dtype=torch.int64).view(1, length)
                after = required(values)[0].tolist()
                expected = [slow((*words, token)) for token in required.tokens.tolist()]
                assert after == [*expected, slow((*words, 99))], (phrases, words)


def constraints() -> list[LogitsConstraint]:
    return [
        NoRepeatedNgrams(2, V), Lengths(2, None, END, V, CPU), Forbidden([0], V, CPU),
        ForcedText([2], b"ab", BYTES, CPU),
    ]  # fmt: skip


@pytest.mark.parametrize("constraint", constraints(), ids=lambda made: type(made).__name__)
def test_a_constraint_forbids_in_the_shape_of_logits(constraint: LogitsConstraint) -> None:
    for length in range(5):
        values = torch.full((3, length), 2)
        forbidden = constraint(values)
        assert (forbidden.shape, forbidden.dtype) == ((3, V), torch.bool)
