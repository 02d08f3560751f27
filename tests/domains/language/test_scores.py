"""Losses and scores: only masked positions, every token once, references in loops."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
import torch

from triptych.decoding.sampling import SampleRequest, Sampling
from triptych.domains.language.metrics import (
    INITIAL_COUNT,
    CountModels,
    MaskedCounts,
)
from triptych.domains.language.model import (
    CLS,
    MASK,
    N_SPECIALS,
    SEP,
    ModelConfig,
    Vocabulary,
)
from triptych.domains.language.sources import TextFiles
from triptych.domains.language.tasks.masked import (
    MaskedTokens,
    encode_masked,
    fill_masks,
    neighbours,
)
from triptych.domains.language.tasks.next_token import NextToken, Windows
from triptych.text.batches import evaluation_batches
from triptych.text.tokenizer import PAD
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.objective import ObjectiveConfig
from triptych.training.loading.batches import Ragged


@pytest.mark.parametrize("next_sentence", [False, True])
def test_the_loss_is_over_masked_positions_alone(
    text: TextFiles, vocabulary: Vocabulary, model_config: ModelConfig, next_sentence: bool
) -> None:
    task = MaskedTokens(next_sentence=next_sentence)
    model = task.build_model(model_config, vocabulary, 32).double()
    examples = task.encode(text, "validation", vocabulary, 32)
    batch = examples.batch(range(6), None)
    loss, count = ObjectiveConfig().training_loss(task.predictions, model, batch, [])
    assert count == len(batch.where) > 0
    logits = model(batch.tokens, batch.segments, batch.padding)  # [B, L, V]
    width = batch.tokens.shape[1]
    nats = [
        -logits[int(at) // width, int(at) % width].log_softmax(-1)[expected]
        for at, expected in zip(batch.where, batch.expected, strict=True)
    ]
    mean = wanted = torch.stack(nats).mean()
    if next_sentence:
        wanted = wanted + math.log(2)  # undecided at the start
    torch.testing.assert_close(loss, wanted)

    features = model.encoder(batch.tokens, batch.segments, batch.padding)
    kept = features.detach().requires_grad_()
    model.nll(kept.flatten(0, 1)[batch.where], batch.expected).sum().backward()
    touched = kept.grad.abs().sum(-1).flatten().nonzero().squeeze(1)
    assert torch.equal(touched, batch.where)

    sums = sum_scores(model, lambda b: task.score(model, b), [batch])
    metrics = task.metrics(sums)
    assert metrics["nats_per_masked_token"] == pytest.approx(mean.item())
    right = [
        int(logits[int(at) // width, int(at) % width].argmax()) == expected
        for at, expected in zip(batch.where, batch.expected.tolist(), strict=True)
    ]
    assert metrics["masked_accuracy"] == pytest.approx(np.mean(right))
    assert ("next_sentence_accuracy" in metrics) == next_sentence


def test_a_batch_without_a_masked_token_has_the_loss_0(
    text: TextFiles, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    task = MaskedTokens(predicted=1e-9)
    model = task.build_model(model_config, vocabulary, 32)
    batch = task.encode(text, "test", vocabulary, 32).batch([0], None)
    loss, count = ObjectiveConfig().training_loss(task.predictions, model, batch, [])
    loss.backward()
    assert (loss.item(), count) == (0.0, 1)


def test_scores_do_not_depend_on_the_batches(
    text: TextFiles, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    for task in (MaskedTokens(), MaskedTokens(next_sentence=True), NextToken()):
        model = task.build_model(model_config, vocabulary, 24).double()
        examples = task.encode(text, "test", vocabulary, 24)
        found = [
            sum_scores(
                model, lambda b, t=task, m=model: t.score(m, b), evaluation_batches(examples, size)
            )
            for size in (24, 60, 10_000)
        ]
        assert found[0] == pytest.approx(found[1])
        assert found[0] == pytest.approx(found[2])


def test_masks_are_filled_from_left_to_right_given_all_other_tokens(
    vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    model = MaskedTokens().build_model(model_config, vocabulary, 24).eval()
    for weight in model.encoder.stack.parameters():
        torch.nn.init.normal_(weight)
    tokenizer = vocabulary.tokenizer
    tokens = encode_masked(tokenizer, "the [MASK] sees [MASK][MASK][MASK][MASK] fish")
    assert [token for token in tokens if token != MASK] == [
        CLS, *tokenizer.encode("the"), *tokenizer.encode("sees"), *tokenizer.encode("fish"), SEP,
    ]  # fmt: skip
    expected = torch.tensor([tokens])
    for position in (t for t, token in enumerate(tokens) if token == MASK):
        logits = model(expected)[0, position]
        expected[0, position] = N_SPECIALS + 1 + int(logits[N_SPECIALS + 1 :].argmax())
    request = SampleRequest(2, sampling=Sampling(temperature=0), seed=0)
    found = fill_masks(model, tokens, request, vocabulary)
    assert found == [expected[0].tolist()] * 2
    at_once = model(torch.tensor([tokens]))[0, :, N_SPECIALS + 1 :].argmax(-1) + N_SPECIALS + 1
    masked = torch.tensor(tokens) == MASK
    assert not torch.equal(at_once[masked], expected[0][masked]), "the order matters here"


def test_windows_hold_every_token_of_a_document_once() -> None:
    documents = [[10, 11, 12, 13, SEP], [20, SEP], [30, 31, 32, SEP], [SEP]]
    windows = Windows(Ragged.of(documents), 2, 40)
    rows = [row.tolist() for row in windows.windows]
    assert rows == [[10, 11], [12, 13], [SEP], [20, SEP], [30, 31], [32, SEP], [SEP]]
    assert windows.previous.tolist() == [-1, 11, 13, -1, -1, 31, -1]
    contexts, targets = windows.pairs()
    assert targets.tolist() == [token for document in documents for token in document]
    assert contexts.tolist() == [CLS, 10, 11, 12, 13, CLS, 20, CLS, 30, 31, 32, CLS]
    contexts, targets = windows.pairs(2)
    assert (contexts.tolist(), targets.tolist()) == ([CLS, 10, 11, 12], [10, 11, 12, 13])


def test_perplexity_counts_every_real_token_and_no_padding(
    text: TextFiles, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    task = NextToken()
    model = task.build_model(model_config, vocabulary, 16).double().eval()
    examples = task.encode(text, "test", vocabulary, 16)
    documents = text.items("test")
    n_tokens = sum(
        len(vocabulary.tokenizer.encode(line)) for document in documents for line in document
    ) + len(documents)
    total = 0.0
    for number in range(len(examples)):
        window = torch.from_numpy(examples.windows[number].astype(np.int64)).unsqueeze(0)
        previous = torch.tensor([int(examples.previous[number])])
        with torch.no_grad():
            log_p = model(window, previous).log_softmax(-1)
        total -= float(log_p.gather(-1, window.unsqueeze(-1)).sum())
    sums = sum_scores(model, lambda b: task.score(model, b), evaluation_batches(examples, 100))
    assert sums["tokens"] == n_tokens
    assert sums["nats"] == pytest.approx(total)
    assert task.metrics(sums)["perplexity"] == pytest.approx(math.exp(total / n_tokens))


def test_the_bigram_model_against_its_definition() -> None:
    vocabulary = 9
    generator = np.random.default_rng(0)
    contexts, targets = generator.integers(1, 7, (2, 60))
    model = CountModels(contexts, targets, vocabulary)
    singles = Counter(targets.tolist())
    after: dict[int, Counter[int]] = defaultdict(Counter)
    for context, target in zip(contexts.tolist(), targets.tolist(), strict=True):
        after[context][target] += 1

    def unigram(token: int) -> float:
        return (singles[token] + INITIAL_COUNT) / (60 + INITIAL_COUNT * vocabulary)

    def bigram(context: int, token: int) -> float:
        seen = after[context]
        if not seen:
            return unigram(token)
        return (seen[token] + len(seen) * unigram(token)) / (sum(seen.values()) + len(seen))

    for context in range(vocabulary):
        every = np.arange(vocabulary)
        found = model.bigram(np.full(vocabulary, context), every)
        assert found.sum() == pytest.approx(1)
        assert found == pytest.approx([bigram(context, token) for token in every.tolist()])
        best = int(model.likeliest(np.array([context]))[0])
        assert bigram(context, best) == pytest.approx(found.max())
    assert model.unigram.sum() == pytest.approx(1)
    nats = model.nats(contexts, targets)
    pairs = list(zip(contexts.tolist(), targets.tolist(), strict=True))
    assert nats["bigram"] == pytest.approx(-np.mean([math.log(bigram(*pair)) for pair in pairs]))
    assert nats["uniform"] == pytest.approx(math.log(vocabulary))
    accuracy = model.accuracy(contexts, targets)
    top = max(range(vocabulary), key=unigram)
    assert accuracy["unigram"] == pytest.approx(np.mean(targets == top))


def test_a_token_between_two_neighbours_against_its_definition() -> None:
    """The bigram model as a Markov chain: the joint probability of the row, normalised."""
    rows = [[CLS, 5, 6, 5, 7, SEP], [CLS, 6, 7, SEP], [CLS, 5, 5, 8, 6, SEP]]
    vocabulary = 10
    counted = MaskedCounts(Ragged.of(rows), vocabulary)
    pairs = [pair for row in rows for pair in pairwise(row)]
    chain = CountModels(*np.array(pairs).T, vocabulary)

    def step(before: int, after: int) -> float:
        return float(chain.bigram(np.array([before]), np.array([after]))[0])

    for left in (CLS, 5, 8, 9, MASK):
        for right in (SEP, 6, 9, MASK):
            joint = {
                token: step(left, token) * (1.0 if right == MASK else step(token, right))
                for token in range(N_SPECIALS, vocabulary)
            }
            found = counted.between(left, right)
            assert found.sum() == pytest.approx(1)
            for token in range(vocabulary):
                wanted = joint.get(token, 0.0) / sum(joint.values())
                assert found[token] == pytest.approx(wanted)


def test_simple_models_read_what_the_model_reads(
    text: TextFiles, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    """The count models of masked tokens see [MASK] where the model does."""
    task = MaskedTokens(predicted=0.5)
    examples = task.encode(text, "train", vocabulary, 24)
    counted = MaskedCounts(examples.rows, len(vocabulary))
    rows = [row.tolist() for row in examples.rows]
    n_inner = sum(len(row) - 2 for row in rows)
    token = N_SPECIALS + 5
    expected = (Counter(t for row in rows for t in row[1:-1])[token] + INITIAL_COUNT) / (
        n_inner + INITIAL_COUNT * len(vocabulary)
    )
    assert counted.counts.unigram[token] == pytest.approx(expected)
    batch = examples.batch(range(8), None)
    left, right, expected_tokens = neighbours([batch])
    assert MASK in left
    assert CLS in left
    assert SEP in right
    assert not {PAD, SEP} & set(left.tolist())
    assert not {PAD, CLS} & set(right.tolist())
    nats, accuracy = counted.scores(left, right, expected_tokens)
    joint = [
        -math.log(counted.between(int(a), int(b))[int(token)])
        for a, b, token in zip(left, right, expected_tokens, strict=True)
    ]
    assert nats["both neighbours"] == pytest.approx(np.mean(joint))
    assert set(accuracy) == {"unigram", "bigram", "both neighbours"}
