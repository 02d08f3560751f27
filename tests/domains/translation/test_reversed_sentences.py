"""Pairs of known entropy: the law against enumeration, the draws, the figure in `evaluate`."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from triptych.core.feed_forward import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.baselines import ladder
from triptych.domains.translation.data import DataConfig, EncodedPairs
from triptych.domains.translation.inference import Translator
from triptych.domains.translation.model import ModelConfig
from triptych.domains.translation.reversed_sentences import ReversedSentences
from triptych.domains.translation.task import Config, TranslationTask, prepare, scoring_batches
from triptych.domains.translation.tokenizer import END, Tokenizers
from triptych.training.evaluate import evaluate

TINY = ReversedSentences(
    words=3, shortest=2, longest=4, change=0.2, train=60, validation=60, test=5, seed=3
)


def probability(source: list[str], target: list[str], law: ReversedSentences) -> float:
    """Of the target and its end given the source, by the sentence in the docstring."""
    if len(source) != len(target):
        return 0.0
    found = 1.0
    for place, word in enumerate(target):
        same = word == source[len(source) - 1 - place]
        found *= 1 - law.change if same else law.change / (law.words - 1)
    return found


def test_entropy_is_that_of_all_targets() -> None:
    nats = tokens = 0.0
    for length in (2, 3, 4):  # each as likely
        source = ["a", "b", "c", "a"][:length]
        every = [
            probability(source, list(t), TINY) for t in itertools.product("abc", repeat=length)
        ]
        assert sum(every) == pytest.approx(1)
        nats -= sum(p * math.log(p) for p in every) / 3
        tokens += (length + 1) / 3
    assert TINY.entropy() == pytest.approx(nats / tokens, rel=1e-12)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_nats_are_those_of_the_very_pairs(split: str) -> None:
    nats = [-math.log(probability(s.split(), t.split(), TINY)) for s, t in TINY.pairs(split)]
    assert TINY.nll(split) == pytest.approx(sum(nats), rel=1e-12)
    assert TINY.nll(split, 2) == pytest.approx(sum(nats[:2]), rel=1e-12)


def test_the_draw_follows_the_law() -> None:
    corpus = ReversedSentences(words=4, shortest=3, longest=5, change=0.25, train=6000)
    pairs = [(source.split(), target.split()) for source, target in corpus.pairs("train")]

    def close(counts: Counter[Any], shares: dict[Any, float]) -> bool:
        total = sum(counts.values())
        assert set(counts) <= set(shares)
        return all(
            abs(counts[key] / total - share) < 4 * math.sqrt(share * (1 - share) / total)
            for key, share in shares.items()
        )

    assert close(Counter(len(source) for source, _ in pairs), dict.fromkeys((3, 4, 5), 1 / 3))
    assert close(Counter(w for source, _ in pairs for w in source), dict.fromkeys("abcd", 0.25))
    steps = Counter(
        (ord(said) - ord(word)) % 4
        for source, target in pairs
        for word, said in zip(reversed(source), target, strict=True)
    )
    assert close(steps, {0: 0.75, 1: 0.25 / 3, 2: 0.25 / 3, 3: 0.25 / 3})


def test_splits_are_the_same_every_time_and_differ() -> None:
    corpus = ReversedSentences(shortest=8, train=300, validation=200, test=200)
    seen = [set(corpus.pairs(split)) for split in corpus.splits()]
    assert [len(pairs) for pairs in seen] == [300, 200, 200]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    assert replace(corpus, train=500).pairs("train")[:300] == corpus.pairs("train")
    assert replace(corpus, train=500).pairs("test") == corpus.pairs("test")
    assert replace(corpus, seed=1).pairs("test") != corpus.pairs("test")


@pytest.fixture(scope="module")
def task() -> TranslationTask:
    data = DataConfig(source=TINY, vocabulary_size=300, tokens_per_batch=64, max_length=16)
    sizes = ModelConfig(TransformerConfig(n_layers=1, d_model=8, n_heads=1, feed_forward=GELU(8)))
    return prepare(Config(data=data, model=sizes))[0]


def test_every_word_is_one_token(task: TranslationTask) -> None:
    for split in TINY.splits():
        pairs = TINY.pairs(split)
        encoded = EncodedPairs(pairs, task.tokenizers)
        assert encoded.target_lengths.tolist() == [len(t.split()) + 1 for _, t in pairs]
        assert encoded.source_lengths.tolist() == [len(s.split()) + 1 for s, _ in pairs]


class Perfect(nn.Module):
    """A model that knows the law of TINY."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        super().__init__()
        self.tokenizers = tokenizers

    def forward(self, source: Tensor, source_padding: Tensor, target_input: Tensor) -> Tensor:
        size = len(self.tokenizers.target)
        said = torch.full((*target_input.shape, size), -1e9)  # [B, T, V]
        for row, ids in enumerate(source.tolist()):
            words = self.tokenizers.source.decode(ids).split()[::-1]
            for place, word in enumerate(words[: target_input.shape[1]]):
                for other in "abc":
                    text = other if place == 0 else f" {other}"
                    (token,) = self.tokenizers.target.encode(text)
                    said[row, place, token] = math.log(0.8 if other == word else 0.1)
            said[row, len(words) :, END] = 0.0
        return said


def test_a_perfect_model_scores_what_the_law_scores(task: TranslationTask) -> None:
    perfect = TranslationTask(task.config, task.tokenizers)
    perfect.model = Perfect(task.tokenizers)  # type: ignore[assignment]
    encoded = EncodedPairs(TINY.pairs("test"), task.tokenizers)
    metrics, totals = evaluate(perfect, scoring_batches(encoded, 64))
    law = TINY.nll("test") / totals["tokens"]
    assert metrics["nats_per_token"] == pytest.approx(law, rel=1e-6)


def test_the_law_stands_beside_a_models_figure(task: TranslationTask) -> None:
    found = Translator(task).evaluate("test", limit=3, beam=1)
    law = found.details["true_law"]
    assert law["entropy"] == TINY.entropy()
    expected = TINY.nll("test", 3) / found.details["tokens"]
    assert law["on_what_was_scored"] == pytest.approx(expected)
    assert found.metrics["nats_per_token"] > expected


def test_counting_tokens_by_hand() -> None:
    tokenizers = Tokenizers.train(["a"], ["a"], vocabulary_size=259, shared=True)
    train = EncodedPairs([("a", "aab")], tokenizers)  # a, a, b, END
    held_out = EncodedPairs([("a", "c")], tokenizers)  # c, END
    steps = ladder(259, train, held_out)
    assert steps["uniform"] == math.log(259)
    total = 4 + 259 / 2
    by_hand = -(math.log(0.5 / total) + math.log(1.5 / total)) / 2
    assert steps["frequency of the token"] == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"words": 1}, "2 to 26"),
        ({"words": 27}, "2 to 26"),
        ({"shortest": 0}, "no range"),
        ({"shortest": 11}, "no range"),
        ({"change": 0.0}, "above 0"),
        ({"validation": 0}, "at least one pair"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ReversedSentences(**wrong)
