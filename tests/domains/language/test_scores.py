"""Losses and scores: only masked positions, every token once, references in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from triptych.decoding.sampling import SampleRequest
from triptych.domains.language.model import (
    CLS,
    MASK,
    N_SPECIALS,
    SEP,
    ModelConfig,
    Vocabulary,
    segments,
)
from triptych.domains.language.sources import TextFiles
from triptych.domains.language.tasks.masked import (
    MaskedTokens,
    encode_masked,
    fill_masks,
)
from triptych.domains.language.tasks.next_token import NextToken, Windows
from triptych.text.batches import evaluation_batches
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.objective import ObjectiveConfig
from triptych.training.loading.batches import Ragged
from triptych.types import Sampling


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
    logits = model(batch.tokens, segments(batch.tokens), batch.padding)  # [B, L, V]
    width = batch.tokens.shape[1]
    nats = [
        -logits[int(at) // width, int(at) % width].log_softmax(-1)[expected]
        for at, expected in zip(batch.where, batch.expected, strict=True)
    ]
    mean = wanted = torch.stack(nats).mean()
    if next_sentence:
        wanted = wanted + math.log(2)  # undecided at the start
    torch.testing.assert_close(loss, wanted)

    features = model.encoder(batch.tokens, segments(batch.tokens), batch.padding)
    kept = features.detach().requires_grad_()
    of_masked = model.logits(kept.flatten(0, 1)[batch.where])  # [M, V]
    model.head.nll(of_masked, batch.expected).sum().backward()
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
