from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from table import END, START, Table, V, complete

from triptych.core.attention.cross import CrossAttention
from triptych.core.state import DecodingState, Memory, ProjectedMemory, map_tensors
from triptych.decoding import beam_search as beams
from triptych.decoding.beam_search import beam_search
from triptych.decoding.beams import Hypothesis, LengthPenalty, SearchResult
from triptych.errors import UserError

PENALTIES = [
    LengthPenalty("none"), LengthPenalty("average"), LengthPenalty("gnmt", 0.6),
    LengthPenalty("gnmt", 3.0),
]  # fmt: skip


def results(table: Table, lengths: list[int], **options: object) -> list[SearchResult]:
    return beam_search(
        table, table.state(), start=START, end=END, max_lengths=lengths, **options
    )  # fmt: skip


def search(table: Table, lengths: list[int], **options: object) -> list[list[Hypothesis]]:
    return [row.best for row in results(table, lengths, **options)]


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


def step_sizes(table: Table) -> list[int]:
    """The number of rows in each step of the table, filled as it is searched."""
    sizes: list[int] = []
    original = table.step
    table.step = lambda *args: (sizes.append(len(args[0])), original(*args))[1]
    return sizes


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("n_best", [1, 3])
def test_stopping_early_loses_nothing(penalty: LengthPenalty, n_best: int) -> None:
    """The exact stop gives what a search gives that never stops before the limit."""
    table = Table(list(range(12)))
    steps = step_sizes(table)
    found = search(table, [9] * 12, beam=3, n_best=n_best, penalty=penalty)
    for row, hypotheses in enumerate(found):
        slow = slow_search(table, row, 9, beam=3, penalty=penalty)[:n_best]
        finished = [h for h in hypotheses if h.finished]
        assert [h.tokens for h in finished] == [words for _, words in slow]
        assert [h.score for h in finished] == pytest.approx([score for score, _ in slow])
    assert len(steps) <= 9


@pytest.mark.parametrize("row", range(4))
def test_a_beam_of_one_is_greedy(row: int) -> None:
    table, words = Table([row]), ()
    while len(words) < 12 and END not in words:
        words = (*words, int(table.logits(row, words).argmax()))
    found = search(table, [12], beam=1, penalty=LengthPenalty("average"))[0][0]
    assert (*found.tokens, *[END] * found.finished) == words


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


def test_rows_expand_and_reorder_without_touching_the_memory() -> None:
    memory = ProjectedMemory(torch.arange(3), torch.arange(3))
    state = DecodingState([{"memory_key": torch.arange(3)}], [None, memory], torch.arange(3) + 5)
    wide = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    own, layer = wide.own, wide.layers[0]["memory_key"]  # a name of a variant's own decides nothing
    assert layer.tolist() == [0, 0, 1, 1, 2, 2]
    assert own.tolist() == [5, 5, 6, 6, 7, 7]
    wide.reorder(torch.tensor([1, 1, 2, 2, 5, 4]))
    assert layer.tolist() == [0, 0, 1, 1, 2, 2]
    wide.reorder(torch.tensor([5, 0, 0, 0, 0, 0]))
    assert layer.tolist() == [2, 0, 0, 0, 0, 0]
    assert own.tolist() == [7, 5, 5, 5, 5, 5]
    assert wide.memory[1] is memory
    assert memory.keys.tolist() == [0, 1, 2]
    few = wide.select(torch.tensor([0, 1]), memory_rows=torch.tensor([2]))
    assert few.layers[0]["memory_key"].tolist() == [2, 0]
    assert few.own.tolist() == [7, 5]
    assert few.memory[0] is None
    assert few.memory[1].keys.tolist() == few.memory[1].values.tolist() == [2]
    assert few.memory[1].real is None


@pytest.mark.parametrize(
    ("text", "name"),
    [("0", "none"), ("none", "none"), ("1", "average"), ("average", "average"),
     ("gnmt:0.6", "gnmt:0.6"), ("gnmt:1", "gnmt:1"), ("gnmt:0", "gnmt:0")],
)  # fmt: skip
def test_a_length_penalty_is_read_from_an_option(text: str, name: str) -> None:
    penalty = LengthPenalty.parse(text)
    assert str(penalty) == name
    assert LengthPenalty.parse(str(penalty)) == penalty


@pytest.mark.parametrize(
    "text", ["", "2", "wu", "gnmt", "gnmt:", "gnmt:x", "gnmt:-0.1", "gnmt:nan", "gnmt:inf", "1:2"]
)
def test_other_length_penalties_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="length_penalty must be 0"):
        LengthPenalty.parse(text)


# Rows that leave, and what is not copied ----------------------------------------------------------


@pytest.mark.parametrize("leaving", [0.01, 0.25, 0.5])
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (3, 1), (3, 3)])
def test_rows_that_leave_change_nothing(
    leaving: float, beam: int, n_best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, lengths = list(range(12)), [2, 9, 30, 7, 3, 9, 4, 12, 1, 25, 6, 5]
    monkeypatch.setattr(beams, "MIN_DROP_SHARE", leaving)
    table = Table(rows)
    sizes = step_sizes(table)
    found = results(table, lengths, beam=beam, n_best=n_best)
    alone = []
    for row, length in zip(rows, lengths, strict=True):
        single = Table([row])
        steps = step_sizes(single)
        assert results(single, [length], beam=beam, n_best=n_best) == [found[row]]
        alone.append(len(steps))
    assert max(alone) < 30, "the search stops early"
    # A step has all rows that still search, and at most `leaving` of it are others.
    assert len(sizes) == max(alone)
    for t, size in enumerate(sizes):
        searching = beam * sum(steps > t for steps in alone)
        assert searching <= size
        assert size - searching < leaving * size
    monkeypatch.setattr(beams, "MIN_DROP_SHARE", 2.0)
    stays = Table(rows)
    sizes = step_sizes(stays)
    assert results(stays, lengths, beam=beam, n_best=n_best) == found
    assert set(sizes) == {12 * beam}


def test_the_memory_is_there_once_a_sentence() -> None:
    table, seen = Table([0, 1, 2, 3]), []
    state = table.state()
    original = table.step

    def spy(token: torch.Tensor, position: torch.Tensor, part: DecodingState) -> torch.Tensor:
        memory = part.memory[0].keys
        seen.append((len(token), len(memory), memory.untyped_storage().nbytes()))
        if len(memory) == 4:
            assert memory is state.memory[0].keys
        return original(token, position, part)

    table.step = spy
    beam_search(table, state, beam=3, start=START, end=END, max_lengths=[2, 5, 9, 14])
    assert {tokens // sentences for tokens, sentences, _ in seen} == {3}
    assert {nbytes // sentences for _, sentences, nbytes in seen} == {8}  # one int64 each
    assert seen[0][1] == 4
    assert seen[-1][1] < 4


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_hypotheses_read_their_sentence_as_if_each_had_its_own(length: int, padded: bool) -> None:
    cross = CrossAttention(8, 2).double()
    memory = torch.randn(3, 5, 8, dtype=torch.float64)
    real = torch.arange(5) < torch.tensor([[5], [2], [4]]) if padded else None
    x = torch.randn(12, length, 8, dtype=torch.float64)
    state = cross.project_memory(Memory(memory, real))
    own = map_tensors(state, lambda tensor: tensor.repeat_interleave(4, dim=0))
    assert torch.allclose(cross(x, state), cross(x, own), atol=1e-12)


def test_steps_and_moves_touch_what_is_filled_alone() -> None:
    """Whatever lies behind the narrow view stays as it was, and the outputs are the same."""
    table, lengths = Table(list(range(6))), []

    def narrow(state: DecodingState, length: int) -> DecodingState:
        lengths.append(length)
        (layer,) = state.layers
        return replace(state, layers=[layer | {"history": layer["history"][:, :length]}])

    original = table.step

    def step(token: torch.Tensor, position: torch.Tensor, state: DecodingState) -> torch.Tensor:
        assert state.layers[0]["history"].shape[1] == position + 1
        return original(token, position, state)

    table.step, table.state_view = step, narrow
    found = search(table, [9] * 6, beam=3, n_best=2)
    assert found == search(Table(list(range(6))), [9] * 6, beam=3, n_best=2)
    assert lengths == list(range(1, len(lengths) + 1))


# The margin of the closest decision ---------------------------------------------------------------


class Noisy(Table):
    """The same table with its log p off by at most `noise[row]` nats a token."""

    def __init__(self, rows: list[int], noise: dict[int, float], seed: int) -> None:
        super().__init__(rows)
        self.noise, self.seed = noise, seed

    def logits(self, row: int, history: tuple[int, ...]) -> torch.Tensor:
        exact = super().logits(row, history).log_softmax(-1)
        seed = hash((self.seed, row, *history)) % (2**31)
        draw = torch.randint(0, 2, (V,), generator=torch.Generator().manual_seed(seed)) * 2 - 1
        # The sum over the vocabulary moves too: half of the noise, so that both fit in it.
        return exact + draw * self.noise[row] / 2


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (3, 2), (3, 3)])
def test_errors_below_half_the_margin_change_no_token(
    penalty: LengthPenalty, beam: int, n_best: int
) -> None:
    rows, limits = list(range(60)), [7, 4, 9] * 20
    options = {"beam": beam, "n_best": n_best, "penalty": penalty}
    table = Table(rows)
    found = beam_search(table, table.state(), start=START, end=END, max_lengths=limits, **options)
    words = [[hypothesis.tokens for hypothesis in row.best] for row in found]
    assert all(row.margin > 0 for row in found)
    noise = {row: min(found[row].margin, 1.0) * 0.499 for row in rows}
    for seed in range(3):
        again = search(Noisy(rows, noise, seed), limits, **options)
        assert [[hypothesis.tokens for hypothesis in best] for best in again] == words


class Written(Table):
    """Probabilities of the next word as they stand in a dict; 1/4 each where nothing stands."""

    def __init__(self, after: dict[tuple[int, ...], list[float]]) -> None:
        super().__init__([0])
        self.after = after

    def logits(self, row: int, history: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor(self.after.get(history, [0.25] * 4), dtype=torch.float64).log()


def margin(table: Table, limit: int, **options: object) -> float:
    (found,) = beam_search(
        table, table.state(), start=START, end=END, max_lengths=[limit],
        **options,
    )  # fmt: skip
    return found.margin


def test_the_margin_is_that_of_each_kind_of_decision() -> None:
    none = LengthPenalty("none")
    # Greedy: the best word against the second.
    first = Written({(): [0.1, 0.2, 0.3, 0.4], (3,): [0.09, 0.9, 0.009, 0.001]})
    assert margin(first, 5, beam=1) == pytest.approx(math.log(0.4 / 0.3))
    # It is per token: the second word of this one is the closer call.
    second = Written({(): [0.1, 0.1, 0.1, 0.7], (3,): [0.05, 0.45, 0.4, 0.1]})
    assert margin(second, 5, beam=1) == pytest.approx(math.log(0.45 / 0.4) / 2)
    # Who stays open: 2 and 3 against 0, whose word has 0.2; the ends are far off.
    opened = Written({(): [0.2, 0.01, 0.58, 0.21]})
    assert margin(opened, 1, beam=2, penalty=none) == pytest.approx(math.log(0.21 / 0.2))
    # Whether an end is among the best two: it is second by little.
    ended = Written({(): [0.25, 0.26, 0.45, 0.04]})
    assert margin(ended, 1, beam=2, penalty=none) == pytest.approx(math.log(0.26 / 0.25))
    # The same from below: an end that is third by little.
    missed = Written({(): [0.26, 0.25, 0.45, 0.04]})
    assert margin(missed, 1, beam=2, penalty=none) == pytest.approx(math.log(0.26 / 0.25))
    # The two best of all that finished, after two tokens; the third is far off.
    ranked = Written({(): [0.04, 0.4, 0.48, 0.08], (2,): [0.1, 0.83, 0.05, 0.02]})
    expected = (math.log(0.4) - math.log(0.48 * 0.83)) / 2
    assert margin(ranked, 2, beam=2, penalty=none) == pytest.approx(expected)
    # The best open one at the length limit, where none has finished.
    unfinished = Written({(): [0.26, 0.001, 0.539, 0.2], (2,): [0.4, 0.001, 0.41, 0.189]})
    assert margin(unfinished, 2, beam=2, penalty=none) == pytest.approx(math.log(0.41 / 0.4) / 2)
    # The stop: what is open could at best come to 0.5, just below the finished one.
    stopped = Written({(): [0.001, 0.502, 0.4965, 0.0005]})
    assert margin(stopped, 9, beam=2, penalty=none) == pytest.approx(math.log(0.502 / 0.4965))
