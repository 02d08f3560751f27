from __future__ import annotations

import itertools
import math

import pytest
import torch

from triptych.decoding.beam import Hypothesis, LengthPenalty, beam_search, expand_rows, reorder_rows

V, START, END = 4, 0, 1
PENALTIES = [
    LengthPenalty("none"), LengthPenalty("average"), LengthPenalty("gnmt", 0.6),
    LengthPenalty("gnmt", 3.0),
]  # fmt: skip


class Table:
    """A language model without a network: each row draws its logits from its whole history."""

    def __init__(self, rows: list[int], sharpness: float = 2.0) -> None:
        self.rows, self.sharpness = rows, sharpness

    def logits(self, row: int, history: tuple[int, ...]) -> torch.Tensor:
        seed = hash((row, *history)) % (2**31)
        drawn = torch.randn(V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return drawn * self.sharpness

    def state(self) -> list[dict[str, torch.Tensor]]:
        history = torch.full((len(self.rows), 40), -1)
        return [{"row": torch.tensor(self.rows), "history": history}]

    def step(
        self, token: torch.Tensor, position: torch.Tensor, state: list[dict[str, torch.Tensor]]
    ) -> torch.Tensor:
        state[0]["history"][:, position] = token
        past = state[0]["history"][:, 1 : position + 1].tolist()
        return torch.stack(
            [
                self.logits(row, tuple(words))
                for row, words in zip(state[0]["row"].tolist(), past, strict=True)
            ]
        )

    def log_p(self, row: int, words: tuple[int, ...]) -> float:
        return sum(
            self.logits(row, words[:t]).log_softmax(-1)[word].item() for t, word in enumerate(words)
        )


def search(table: Table, lengths: list[int], **options: object) -> list[list[Hypothesis]]:
    return beam_search(
        table.step, table.state(), start=START, end=END, max_lengths=torch.tensor(lengths),
        **options,
    )  # fmt: skip


def complete(limit: int) -> list[tuple[int, ...]]:
    others = [word for word in range(V) if word != END]
    return [
        (*words, END)
        for length in range(limit)
        for words in itertools.product(others, repeat=length)
    ]


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("row", range(4))
def test_a_wide_beam_finds_the_best_of_all_outputs(penalty: LengthPenalty, row: int) -> None:
    table, limit = Table([row]), 4
    scored = sorted(
        (
            (table.log_p(row, words) / penalty(torch.tensor(len(words))).item(), words)
            for words in complete(limit)
        ),
        reverse=True,
    )
    found = search(table, [limit], beam=200, n_best=5, penalty=penalty)[0]
    for hypothesis, (score, words) in zip(found, scored, strict=False):
        assert hypothesis.finished
        assert (*hypothesis.tokens, END) == words
        assert hypothesis.score == pytest.approx(score)
        assert hypothesis.log_probability == pytest.approx(table.log_p(row, words))


def slow_search(
    table: Table, row: int, limit: int, *, beam: int, penalty: LengthPenalty
) -> list[tuple[float, list[int]]]:
    """Beam search in plain lists that always runs to the length limit: finished outputs, sorted."""
    unfinished: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished = []
    for length in range(1, limit + 1):
        candidates = [
            (log_p + step, (*words, word))
            for log_p, words in unfinished
            for word, step in enumerate(table.logits(row, words).log_softmax(-1).tolist())
        ]
        candidates = sorted(candidates, reverse=True)[: 2 * beam]
        finished += [
            (log_p / penalty(torch.tensor(length)).item(), list(words[:-1]))
            for log_p, words in candidates[:beam]
            if words[-1] == END
        ]
        unfinished = [c for c in candidates if c[1][-1] != END][:beam]
    return sorted(finished, reverse=True)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("n_best", [1, 2, 3])
def test_stopping_early_loses_nothing(penalty: LengthPenalty, n_best: int) -> None:
    """The exact stop gives what a search gives that never stops before the limit."""
    table, calls = Table(list(range(12))), []
    original = table.step
    table.step = lambda *args: (calls.append(1), original(*args))[1]
    found = search(table, [9] * 12, beam=3, n_best=n_best, penalty=penalty)
    for row, hypotheses in enumerate(found):
        slow = slow_search(table, row, 9, beam=3, penalty=penalty)[:n_best]
        finished = [h for h in hypotheses if h.finished]
        assert [h.tokens for h in finished] == [words for _, words in slow]
        assert [h.score for h in finished] == pytest.approx([score for score, _ in slow])
    assert len(calls) <= 9


def test_the_search_does_stop_early() -> None:
    calls = []
    table = Table([0, 1, 2], sharpness=8.0)
    original = table.step
    table.step = lambda *args: (calls.append(1), original(*args))[1]
    search(table, [30] * 3, beam=3, penalty=LengthPenalty("none"))
    assert len(calls) < 30


@pytest.mark.parametrize("row", range(8))
def test_a_beam_of_one_is_greedy(row: int) -> None:
    table = Table([row])
    words: list[int] = []
    while len(words) < 12:
        words.append(int(table.logits(row, tuple(words)).argmax()))
        if words[-1] == END:
            break
    found = search(table, [12], beam=1, penalty=LengthPenalty("average"))[0][0]
    assert found.tokens == [word for word in words if word != END]


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_a_row_does_not_depend_on_its_batch(penalty: LengthPenalty) -> None:
    rows, lengths = list(range(8)), [2, 9, 5, 7, 3, 9, 4, 12]
    together = search(Table(rows), lengths, beam=3, n_best=3, penalty=penalty)
    for row, length, expected in zip(rows, lengths, together, strict=True):
        assert search(Table([row]), [length], beam=3, n_best=3, penalty=penalty)[0] == expected


def test_n_best_is_sorted_distinct_and_scored_as_promised() -> None:
    penalty = LengthPenalty("gnmt", 0.6)
    for row, found in enumerate(search(Table([0, 1, 2]), [10] * 3, beam=4, n_best=4)):
        scores = [hypothesis.score for hypothesis in found if hypothesis.finished]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.tokens) for hypothesis in found}) == len(found) == 4
        for hypothesis in found:
            words = tuple(hypothesis.tokens) + ((END,) if hypothesis.finished else ())
            log_p = Table([row]).log_p(row, words)
            assert hypothesis.log_probability == pytest.approx(log_p)
            divisor = penalty(torch.tensor(len(words))).item()
            assert hypothesis.score == pytest.approx(log_p / divisor)


def test_at_the_length_limit_the_best_open_output_is_given() -> None:
    """Not the first one of the beam, and marked as unfinished."""

    class Endless(Table):
        def logits(self, row: int, history: tuple[int, ...]) -> torch.Tensor:
            logits = super().logits(row, history).clone()
            logits[END] = -torch.inf
            return logits

    table = Endless([0])
    found = search(table, [3], beam=27, n_best=1)[0][0]
    best = max(itertools.product([0, 2, 3], repeat=3), key=lambda words: table.log_p(0, words))
    assert not found.finished
    assert tuple(found.tokens) == best


def test_forbidden_tokens_never_come() -> None:
    for found in search(Table(list(range(6))), [8] * 6, beam=2, n_best=2, forbidden=(0, 3)):
        assert all(set(hypothesis.tokens) <= {2} for hypothesis in found)


def test_the_penalties_are_their_formulas() -> None:
    length = torch.tensor([1, 7, 30])
    assert LengthPenalty("none")(length).tolist() == [1, 1, 1]
    assert LengthPenalty("average")(length).tolist() == [1, 7, 30]
    expected = [((5 + n) / 6) ** 0.6 for n in (1, 7, 30)]
    assert LengthPenalty("gnmt", 0.6)(length).tolist() == pytest.approx(expected)
    assert LengthPenalty("gnmt", 0.0)(length).tolist() == [1, 1, 1]
    assert math.isclose(LengthPenalty()(torch.tensor(1)).item(), 1.0)
    for wrong in ({"name": "wu"}, {"alpha": -0.1}):
        with pytest.raises(ValueError, match=r"penalty|alpha"):
            LengthPenalty(**wrong)
    with pytest.raises(ValueError, match="n_best"):
        search(Table([0]), [3], beam=2, n_best=3)


def test_rows_expand_and_reorder_without_touching_the_memory() -> None:
    state = [{"key": torch.arange(3), "memory_key": torch.arange(3)}]
    wide = expand_rows(state, 2)
    assert wide[0]["key"].tolist() == [0, 0, 1, 1, 2, 2]
    storage = wide[0]["key"].data_ptr()
    reorder_rows(wide, torch.tensor([1, 1, 2, 2, 5, 4]))
    assert wide[0]["key"].tolist() == [0, 0, 1, 1, 2, 2]
    reorder_rows(wide, torch.tensor([5, 0, 0, 0, 0, 0]))
    assert wide[0]["key"].tolist() == [2, 0, 0, 0, 0, 0]
    assert wide[0]["memory_key"].tolist() == [0, 0, 1, 1, 2, 2]
    assert wide[0]["key"].data_ptr() == storage
