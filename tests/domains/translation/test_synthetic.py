"""Synthetic corpora: numbers in words, and reversed sentences of known entropy."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from triptych.core.heads import CategoricalHead
from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.config import Config, DataConfig, ModelConfig
from triptych.domains.translation.data import EncodedPairs
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.model import END, Tokenizers
from triptych.domains.translation.synthetic import NumberWords, ReversedSentences
from triptych.domains.translation.task import TranslationTrainingModule, prepare
from triptych.text.batches import evaluation_batches
from triptych.training.engine.evaluate import sum_scores

# Numbers in words --------------------------------------------------------------------------------


def small(**settings: object) -> NumberWords:
    return NumberWords(
        **{"train_size": 60, "validation_size": 20, "test_size": 20, "high": 999, **settings}
    )


def test_values_are_held_out_and_drawn_without_replacement() -> None:
    corpus = small(train_size=900, validation_size=50, test_size=50)
    values = {split: corpus.values(split) for split in corpus.splits()}
    assert [len(values[split]) for split in corpus.splits()] == [900, 50, 50]
    every = [value for split in values.values() for value in split]
    assert sorted(every) == list(range(1000))  # every value exactly once


def test_held_out_values_do_not_depend_on_the_amount_of_training() -> None:
    few, many = small(train_size=10), small(train_size=500)
    assert few.values("test") == many.values("test")
    assert few.values("validation") == many.values("validation")
    assert few.values("test") != small(seed=1).values("test")


def test_training_may_small_value_bias_values_and_the_test_does_not() -> None:
    def share_below_a_thousand(values: list[int]) -> float:
        return sum(value < 1_000 for value in values) / len(values)

    leaning, even = (
        NumberWords(train_size=2_000, validation_size=1, high=99_999, small_value_bias=lean)
        for lean in (0.5, 0)
    )
    # Weights v^-0.5 put sqrt(1 / 100) of the draws there, weights of 1 put 1 / 100.
    assert share_below_a_thousand(leaning.values("train")) == pytest.approx(0.10, abs=0.03)
    assert share_below_a_thousand(even.values("train")) == pytest.approx(0.01, abs=0.007)
    assert leaning.values("test") == even.values("test")
    assert len(set(leaning.values("train"))) == 2_000


def test_words_are_those_of_the_two_languages() -> None:
    words = {
        "en": "one thousand, two hundred and thirty-four",
        "de": "eintausendzweihundertvierunddreißig",
        "ko": "천이백삼십사",
    }
    for source, target in [("en", "de"), ("de", "ko"), ("ko", "en")]:
        corpus = NumberWords(
            source_language=source,
            target_language=target,
            low=1234,
            high=1236,
            train_size=1,
            validation_size=1,
            test_size=1,
        )
        pairs = [pair for split in corpus.splits() for pair in corpus.items(split)]
        assert len(pairs) == 3
        assert (words[source], words[target]) in pairs


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_language": "fr"}, "source_language is fr .* two of en, de, ko"),
        ({"target_language": "en"}, "target_language is en; expected two of"),
        ({"low": 5, "high": 4}, "as many values from low 5 to high 4"),
        ({"high": 1_000_000}, "within 0 to 999,999"),
        ({"train_size": 961}, "add up to 1,001; .* low 0 to high 999"),
    ],
)
def test_impossible_number_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**settings)


# Reversed sentences -------------------------------------------------------------------------------


TINY = ReversedSentences(
    n_words=3,
    min_words=2,
    max_words=4,
    change=0.2,
    train_size=60,
    validation_size=60,
    test_size=5,
    seed=3,
)


def probability(source: list[str], target: list[str], law: ReversedSentences) -> float:
    """Of the target and its end given the source, by the sentence in the docstring."""
    if len(source) != len(target):
        return 0.0
    found = 1.0
    for place, word in enumerate(target):
        same = word == source[len(source) - 1 - place]
        found *= 1 - law.change if same else law.change / (law.n_words - 1)
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


def law_nats(limit: int | None = None) -> float:
    """The true nats of the test pairs."""
    pairs = TINY.items("test")[:limit]
    return -sum(math.log(probability(s.split(), t.split(), TINY)) for s, t in pairs)


def test_the_draw_follows_the_law() -> None:
    corpus = ReversedSentences(n_words=4, min_words=3, max_words=5, change=0.25, train_size=6000)
    pairs = [(source.split(), target.split()) for source, target in corpus.items("train")]

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


@pytest.fixture(scope="module")
def task() -> TranslationTrainingModule:
    data = DataConfig(source=TINY, vocabulary_size=300, max_tokens=64, max_length=16)
    sizes = ModelConfig(TransformerConfig(n_layers=1, d_model=8, n_heads=1, feed_forward=GELU(8)))
    return prepare(Config(data=data, model=sizes))[0]


def test_every_word_is_one_token(task: TranslationTrainingModule) -> None:
    for split in TINY.splits():
        pairs = TINY.items(split)
        encoded = EncodedPairs.of(pairs, task.tokenizers)
        assert encoded.sizes(range(len(pairs)))[:, 1].tolist() == [
            len(t.split()) + 1 for _, t in pairs
        ]
        assert encoded.sizes(range(len(pairs)))[:, 0].tolist() == [
            len(s.split()) + 1 for s, _ in pairs
        ]


class Perfect(nn.Module):
    """A model that knows the law of TINY."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        super().__init__()
        self.tokenizers = tokenizers
        size = len(tokenizers.target)
        identity = nn.Parameter(torch.eye(size))
        self.head = CategoricalHead(size, size, bias=False, weight=identity)

    def features(self, source: Tensor, source_padding: Tensor, target_input: Tensor) -> Tensor:
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


def test_a_perfect_model_scores_what_the_law_scores(task: TranslationTrainingModule) -> None:
    perfect = TranslationTrainingModule(task.config, task.tokenizers)
    perfect.model = Perfect(task.tokenizers)  # type: ignore[assignment]
    encoded = EncodedPairs.of(TINY.items("test"), task.tokenizers)
    totals = sum_scores(perfect, perfect.score, evaluation_batches(encoded, 64))
    metrics = perfect.metrics(totals)
    law = law_nats() / totals["tokens"]
    assert metrics["nats_per_token"] == pytest.approx(law, rel=1e-6)


def test_evaluation_reports_the_entropy_of_the_source(task: TranslationTrainingModule) -> None:
    found = TranslationModel.of_run(task.config, task.model, task.tokenizers).evaluate(
        "test", limit=3, beam=1
    )
    assert found.details["source_entropy"] == TINY.entropy()
    expected = law_nats(3) / found.details["tokens"]
    assert found.metrics["nats_per_token"] > expected


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n_words": 1}, "2 to 26"),
        ({"min_words": 11}, "at least min_words"),
    ],
)
def test_impossible_sentence_settings_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ReversedSentences(**wrong)
    assert len(ReversedSentences(n_words=2, min_words=10).items("test")) == 1000
