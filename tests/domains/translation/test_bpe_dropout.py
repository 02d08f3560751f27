"""Merges are dropped by the law that the paper gives, the same way for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from triptych.domains.translation.bpe_dropout import DroppedMerges
from triptych.domains.translation.data import Batch, DataConfig, EncodedPairs
from triptych.domains.translation.epochs import TrainingPairs
from triptych.domains.translation.task import Config, prepare
from triptych.domains.translation.tokenizer import END, PAD, START, BytePairTokenizer, Tokenizers

LINES = [
    "Zwei junge Männer spielen auf der großen Wiese.",
    "Ein Hund läuft über die Wiese, und zwei Hunde bellen.",
    "저는 학생입니다. 그는 학생이 아닙니다.",
    "barbarabarbara banana bananas aaaaaaa",
    "  two  blanks, 1,234.5 and\ttabs ",
] * 6


@pytest.fixture(scope="module")
def tokenizer() -> BytePairTokenizer:
    return BytePairTokenizer.train(LINES, 420)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def law(tokenizer: BytePairTokenizer, word: str, dropout: float) -> dict[tuple[int, ...], float]:
    """How likely each way to cut a word is: the paper's algorithm 1, followed down every branch."""
    learnt = {(left, right): (r, both) for r, (left, right, both) in enumerate(tokenizer.merges())}

    @cache
    def outcomes(pieces: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        pairs = enumerate(pairwise(pieces))
        possible = sorted((learnt[pair][0], at) for at, pair in pairs if pair in learnt)
        found = Counter({pieces: dropout ** len(possible)})  # all were passed over
        for passed_over, (_, at) in enumerate(possible):
            both = learnt[pieces[at], pieces[at + 1]][1]
            after = (*pieces[:at], both, *pieces[at + 2 :])
            for final, share in outcomes(after).items():
                found[final] += dropout**passed_over * (1 - dropout) * share
        return found

    return outcomes(tuple(tokenizer.letters(tokenizer.encode(word))))


@pytest.mark.parametrize("word", ["Hund", "banana", "aaaaaaa", "학생", "x"])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_every_way_to_cut_a_word_comes_as_often_as_it_should(
    tokenizer: BytePairTokenizer, word: str, dropout: float
) -> None:
    expected = law(tokenizer, word, dropout)
    assert sum(expected.values()) == pytest.approx(1.0)
    draws = 20_000
    drawn = DroppedMerges(tokenizer, ["Wiese", word], dropout=dropout)
    found = Counter(map(tuple, drawn.rows([1] * draws, generator())))
    assert set(found) <= set(expected)
    for pieces, share in expected.items():
        deviation = (draws * share * (1 - share)) ** 0.5
        assert abs(found[pieces] - draws * share) < 4.5 * deviation + 1, (pieces, share)


def test_merging_without_a_drop_is_the_tokenizers_own_encoding(
    tokenizer: BytePairTokenizer,
) -> None:
    draw = random.Random(0)
    letters = "abnreHundWiäöß학생입니다. ,1aa"
    lines = ["".join(draw.choices(letters, k=draw.randrange(1, 25))) for _ in range(3_000)]
    merged = DroppedMerges(tokenizer, lines, dropout=0.9)
    words = [word for line in tokenizer.encode_words(lines) for word in line]
    different = list(dict.fromkeys(words))
    assert len(different) > 4_000
    numbers = np.arange(len(different))
    place, ids = merged.merge(numbers, np.full(len(different), np.inf), generator())
    order = np.argsort(place, kind="stable")
    assert ids[order].tolist() == [piece for word in different for piece in word]
    assert place[order].tolist() == [n for n, word in enumerate(different) for _ in word]
    assert [[i for word in line for i in word] for line in tokenizer.encode_words(lines)] == (
        tokenizer.encode_batch(lines)
    )


@pytest.mark.parametrize("dropout", [1e-9, 0.1, 0.7, 1 - 1e-9])
def test_the_text_stays_the_same_whatever_is_dropped(
    tokenizer: BytePairTokenizer, dropout: float
) -> None:
    lines = [*LINES, "", "🎉 never seen ½", "=" * 300, "\u2028 a\u00a0b"]
    drawn = DroppedMerges(tokenizer, lines, dropout=dropout)
    rows = drawn.rows(range(len(lines)), generator())
    assert tokenizer.decode_batch(rows) == lines
    whole = tokenizer.encode_batch(lines)
    if dropout < 1e-6:
        assert rows == whole
    elif dropout > 0.999:
        assert rows == [tokenizer.letters(row) for row in whole]
    else:
        assert rows != whole
    assert drawn.rows([], generator()) == []


def test_a_draw_depends_on_its_generator_alone(tokenizer: BytePairTokenizer) -> None:
    drawn = DroppedMerges(tokenizer, LINES, dropout=0.3)
    first = drawn.rows([3, 0, 3], generator(1))
    assert first[0] != first[2], "the same line twice in a batch is drawn twice"
    drawn.rows(range(10), generator(2))
    assert drawn.rows([3, 0, 3], generator(1)) == first
    again = DroppedMerges(tokenizer, LINES, dropout=0.3)
    assert again.rows([3, 0, 3], generator(1)) == first
    assert drawn.rows([3, 0, 3], generator(2)) != first
    # torch's own generator, which dropout in the model uses, is left alone.
    before = torch.get_rng_state()
    drawn.rows([0], generator(1))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_tokenizer_without_merges_has_nothing_to_drop() -> None:
    plain = BytePairTokenizer.train(["ab"], 259)
    assert plain.merges() == []
    drawn = DroppedMerges(plain, ["ab", "ä"], dropout=0.5)
    assert drawn.rows([0, 1], generator()) == plain.encode_batch(["ab", "ä"])


# In batches and in training ----------------------------------------------------------------------


def planned(training: TrainingPairs, epoch: int, seed: int = 0) -> list[Batch]:
    chosen = range(len(training.encoded))
    plan = training.plan(epoch, chosen, budget=300, generator=generator(seed))
    return [training.batch(items) for items in plan]


def test_batches_hold_every_pair_cut_by_the_lengths_it_has(tokenizer: BytePairTokenizer) -> None:
    pairs = [(line, line[::-1]) for line in LINES]
    training = TrainingPairs(pairs, Tokenizers(tokenizer, tokenizer), dropout=0.3)
    for epoch in (0, 1, 5):
        found = []
        batches = planned(training, epoch)
        for batch in batches:
            assert max(batch.source.numel(), batch.expected.numel()) <= 300 or len(batch[0]) == 1
            for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
                end, target_end = source.index(END), target.index(END)
                assert set(source[end + 1 :] + target[target_end + 1 :]) <= {PAD}
                assert target[0] == START
                sides = source[:end], target[1:target_end]
                found.append(tuple(tokenizer.decode(ids) for ids in sides))
        assert sorted(found) == sorted(pairs)
        tokens = sum(int((batch.source != PAD).sum()) for batch in batches)
        assert tokens == training.of(epoch).source_lengths.sum()
        assert tokens > 1.2 * training.encoded.source_lengths.sum()


def test_ranks_may_look_at_two_epochs_around_a_border(tokenizer: BytePairTokenizer) -> None:
    pairs = [(line, line) for line in LINES]
    training = TrainingPairs(pairs, Tokenizers(tokenizer, tokenizer), dropout=0.3)
    plans = [
        training.plan(epoch, range(len(pairs)), budget=300, generator=generator(epoch))
        for epoch in (3, 4)
    ]
    late, next_one = (training.batch(plan[-1]).source.tolist() for plan in plans)
    assert late == planned(training, 3, seed=3)[-1].source.tolist()
    assert next_one == planned(training, 4, seed=4)[-1].source.tolist()


def test_without_dropout_every_epoch_has_the_tokenizers_ids(tokenizer: BytePairTokenizer) -> None:
    pairs = [(line, line) for line in LINES]
    training = TrainingPairs(pairs, Tokenizers(tokenizer, tokenizer), dropout=0.0)
    for epoch in (0, 7):
        plan = training.plan(epoch, [3, 1, 4], budget=300, generator=generator())
        assert sorted(item for batch in plan for item in batch) == [1, 3, 4]
        for items in plan:
            plain = EncodedPairs(pairs, Tokenizers(tokenizer, tokenizer)).batch(items)
            assert torch.equal(training.batch(items).source, plain.source)


def taken(batches: Iterable[Batch]) -> list[tuple[list, list]]:
    return [(batch.source.tolist(), batch.target.tolist()) for batch in batches]


def test_training_draws_anew_each_epoch_and_goes_on_where_it_stopped(tiny_config: Config) -> None:
    config = replace(tiny_config, data=replace(tiny_config.data, bpe_dropout=0.2))
    task, loader, validation = prepare(config)
    plain_task, _, _ = prepare(tiny_config)
    epochs = [
        taken(loader.make_batch(items, None) for items in loader.batches_of(epoch))
        for epoch in range(3)
    ]
    rows = [{tuple(r) for source, _ in epoch for r in source if r[-1] != PAD} for epoch in epochs]
    assert len(rows[0] & rows[1]) < 0.6 * len(rows[0]), "other pieces"

    held_out = [source for source, _ in config.data.source.pairs("validation")]
    scored = [row for source, _ in taken(validation) for row in source]
    undropped = [[*ids, END] for ids in task.tokenizers.source.encode_batch(held_out)]
    assert sorted(row[: row.index(END) + 1] for row in scored) == sorted(undropped)
    assert task.tokenizers.source.to_json() == plain_task.tokenizers.source.to_json()

    order = [batch for epoch in epochs for batch in epoch]
    _, uncut, _ = prepare(config)
    through = taken(uncut) + taken(uncut)
    assert through == order[: len(through)]
    for seen in (3, len(epochs[0]) + 2):
        _, cut, _ = prepare(config)
        stands = {"epoch": int(seen > len(epochs[0])), "index": seen % len(epochs[0])}
        state = {**uncut.state_dict(), **stands, "batches_taken": seen}
        del state["plan"]  # of the epoch in which `uncut` stands
        cut.load_state_dict(state)
        assert taken(cut) == order[seen : seen + len(cut)]


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_impossible_dropout_is_refused(dropout: float) -> None:
    with pytest.raises(ValueError, match="expected 0 to below 1"):
        DataConfig(bpe_dropout=dropout)
