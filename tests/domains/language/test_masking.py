"""Masks: their rates, what is never masked, new ones each epoch and the same after a resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from triptych.decoding.sampling import SampleRequest
from triptych.domains.language.model import (
    CLS,
    MASK,
    N_SPECIALS,
    SEP,
    SPECIALS,
    ModelConfig,
    Vocabulary,
    segments,
)
from triptych.domains.language.tasks.masked import MaskedBatch, MaskedExamples, MaskedTokens
from triptych.errors import UserError
from triptych.text.batches import evaluation_batches, training_batches
from triptych.text.byte_level import BytePairs, Characters
from triptych.text.tokenizer import PAD
from triptych.training.loading.batches import Ragged

V = 50
UNK = N_SPECIALS
KNOWN = range(UNK + 1, V)


def test_rates_are_those_of_the_paper() -> None:
    tokens = torch.randint(N_SPECIALS, V, (400_000,))
    read, predicted = MaskedTokens().apply(tokens, KNOWN, torch.Generator().manual_seed(0))
    n = len(tokens)
    assert abs(int(predicted.sum()) - 0.15 * n) < 4 * (n * 0.15 * 0.85) ** 0.5
    chosen, original = read[predicted], tokens[predicted]
    count = len(chosen)
    # A random token is the original one with probability 1 / (V - UNK - 1).
    same = 0.1 + 0.1 / (V - UNK - 1) * float((original > UNK).double().mean())
    for share, wanted in (
        ((chosen == MASK).double().mean(), 0.8),
        ((chosen == original).double().mean(), same),
    ):
        assert abs(float(share) - wanted) < 4 * (wanted * (1 - wanted) / count) ** 0.5
    assert torch.equal(read[~predicted], tokens[~predicted])
    swapped = chosen[(chosen != MASK) & (chosen != original)]
    assert set(swapped.tolist()) == set(range(UNK + 1, V))


@pytest.mark.parametrize("rates", [(0.0, 0.8, 0.1), (1.0, 0.8, 0.1), (0.15, 0.8, 0.3)])
def test_impossible_rates_are_refused(rates: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"expected|must be"):
        MaskedTokens(*rates)


def examples(*, next_sentence: bool = False) -> MaskedExamples:
    """Documents of four rows; every token tells its row."""
    rows = [[CLS, *[N_SPECIALS + 1 + row] * (3 + row % 5), SEP] for row in range(40)]
    document = np.arange(40) // 4
    task = MaskedTokens(next_sentence=next_sentence)
    return MaskedExamples(Ragged.of(rows), document, task, KNOWN)


def masks_by_row(batches: list[MaskedBatch]) -> dict[int, list[int]]:
    """What the model reads of each row A, by the token that tells it."""
    found = {}
    for batch in batches:
        original = batch.tokens.flatten().clone()
        original[batch.where] = batch.expected
        for row, read in zip(original.view_as(batch.tokens), batch.tokens, strict=True):
            end = int((row == SEP).nonzero()[0])
            found[int(row[1])] = read[: end + 1].tolist()
    return found


def equal(one: MaskedBatch, other: MaskedBatch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("next_sentence", [False, True])
def test_masks_are_new_in_each_epoch_and_the_same_after_a_resume(next_sentence: bool) -> None:
    def loader():
        return training_batches(examples(next_sentence=next_sentence), 40, seed=3)

    whole = loader()
    first, second = list(whole), list(whole)
    one, other = masks_by_row(first), masks_by_row(second)
    assert one.keys() == other.keys()
    changed = sum(one[row] != other[row] for row in one)
    assert changed > len(one) // 4, "short rows may be without a mask in both"
    half = loader()
    stream = iter(half)
    before = [next(stream) for _ in range(len(first) // 2)]
    resumed = loader()
    resumed.load_state_dict(half.state_dict())
    after = list(resumed)
    pairs = zip(first + second, before + after, strict=False)
    assert all(equal(a, b) for a, b in pairs)


def test_masks_of_a_validation_depend_on_the_example_alone() -> None:
    data = examples()
    of_one = {item: data.batch([item], None) for item in range(40)}
    for batch_items in ([5, 3], list(range(40))):
        batch = data.batch(batch_items, None)
        for row, item in enumerate(batch_items):
            alone = of_one[item].tokens[0]
            assert torch.equal(batch.tokens[row, : len(alone)], alone)
            assert (batch.tokens[row, len(alone) :] == PAD).all()
    assert equal(data.batch([1, 2], None), data.batch([1, 2], None))


@pytest.mark.parametrize("next_sentence", [False, True])
def test_a_batch_says_where_the_predicted_tokens_are(next_sentence: bool) -> None:
    data = examples(next_sentence=next_sentence)
    found = 0
    for batch in evaluation_batches(data, 100):
        read = batch.tokens.flatten()[batch.where]
        assert not set(batch.expected.tolist()) & {PAD, CLS, SEP, MASK}
        found += len(read)
        # What is not predicted shows the row's own token: special ids are in their places.
        assert (batch.tokens[:, 0] == CLS).all()
        assert (batch.tokens == SEP).sum(1).tolist() == [1 + next_sentence] * len(batch.tokens)
        inner = torch.ones(batch.tokens.numel(), dtype=torch.bool)
        inner[batch.where] = False
        assert not (batch.tokens.flatten()[inner] == MASK).any()
    assert found > 10


def test_segments_and_labels_of_the_next_sentence() -> None:
    data = examples(next_sentence=True)
    assert len(data) == 30, "the last row of a document has no successor"
    generator = torch.Generator().manual_seed(1)
    rates = []
    for _ in range(20):
        for item in range(len(data)):
            first = int(data.first[item])
            a, b, follows = data._segments(item, generator)
            assert a[0] == CLS
            assert a[-1] == b[-1] == SEP
            row = int(b[0]) - N_SPECIALS - 1
            assert (row == first + 1) == bool(follows)
            if not follows:
                assert row // 4 != first // 4, "another document"
            assert len(b) <= len(data.rows[first + 1]) - 1
            rates.append(follows)
    assert abs(np.mean(rates) - 0.5) < 4 * 0.5 / len(rates) ** 0.5
    batch = data.batch(range(4), generator)
    for row, numbers in zip(batch.tokens, segments(batch.tokens), strict=True):
        end = int((row == SEP).nonzero()[0])
        real = row != PAD
        assert numbers[: end + 1].sum() == 0
        assert numbers[end + 1 :][real[end + 1 :]].all()
    rows = data.rows.lengths
    assert data.lengths.tolist() == [rows[first] + rows[first + 1] - 1 for first in data.first]


def test_next_sentences_need_documents_of_several_segments(text, vocabulary: Vocabulary) -> None:
    from dataclasses import replace

    lines = replace(text, one_per_line=True)
    task = MaskedTokens(next_sentence=True)
    with pytest.raises(UserError, match="no document of two segments"):
        task.encode(lines, "train", vocabulary, 60)
    assert len(task.encode(text, "train", vocabulary, 24)) > 10


def test_any_kind_of_tokenizer_serves(text, model_config: ModelConfig) -> None:
    """Byte pairs have no unknown token: every id after the special ones may be drawn."""
    lines = [line for document in text.items("train") for line in document]
    words = Vocabulary(BytePairs().build(lines, 280, SPECIALS))
    assert words.known == range(N_SPECIALS, len(words))
    assert Vocabulary(Characters().build(lines, 60, SPECIALS)).known.start == N_SPECIALS + 1
    again = Vocabulary.from_plain(words.to_plain())
    assert again.tokenizer.decode(again.tokenizer.encode("the [MASK] Ω")) == "the [MASK] Ω"
    task = MaskedTokens()
    examples = task.encode(text, "test", words, 60)
    assert examples.known == words.known
    model = task.build_model(model_config, words, 60)
    rows = task.write(model, words, "the [MASK]", SampleRequest(2, seed=0), 60)
    assert all(row[-2] >= N_SPECIALS for row in rows)
