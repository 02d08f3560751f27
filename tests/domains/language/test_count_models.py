"""scripts/count_models: models of counts against their definitions, and what they read."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections import Counter, defaultdict
from importlib.machinery import SourceFileLoader
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from triptych.domains.language.model import CLS, MASK, N_SPECIALS, SEP, Vocabulary
from triptych.domains.language.sources import TabSeparated, TextFiles
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.domains.language.tasks.next_token import NextToken, Windows
from triptych.domains.language.tasks.span import SpanAnswer
from triptych.text.tokenizer import PAD
from triptych.training.loading.batches import Ragged

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(SCRIPTS))
    loader = SourceFileLoader("count_models", str(SCRIPTS / "count_models"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_each_task_has_its_models(
    script: ModuleType, text: TextFiles, vocabulary: Vocabulary
) -> None:
    for task, metric, names in (
        (NextToken(), "perplexity", {"uniform", "unigram", "bigram"}),
        (MaskedTokens(), "masked_accuracy", {"unigram", "bigram", "both neighbours"}),
    ):
        train, test = (task.encode(text, split, vocabulary, 32) for split in ("train", "test"))
        assert script.scores(task, train, test, 64)[metric].keys() == names


def test_pairs_of_windows_begin_anew_with_each_document(script: ModuleType) -> None:
    documents = [[10, 11, 12, 13, SEP], [20, SEP], [30, 31, 32, SEP], [SEP]]
    contexts, targets = script.pairs_of(Windows(Ragged.of(documents), 2, 40))
    assert targets.tolist() == [token for document in documents for token in document]
    assert contexts.tolist() == [CLS, 10, 11, 12, 13, CLS, 20, CLS, 30, 31, 32, CLS]


def test_the_model_of_answers_takes_what_follows_the_rarest_token(
    script: ModuleType, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    others = [("the dog", f"the dog my fish {n}", "my fish") for n in range(2)]
    rows = [("my horse", "my fish horse one dog", "one dog"), *others]
    for name, some in (("train", rows), ("test", rows[:1])):
        (tmp_path / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in some))
    files = {split: [f"{split}.tsv"] for split in ("train", "test")}
    source = TabSeparated(str(tmp_path), files=files)
    train, test = (SpanAnswer().encode(source, each, vocabulary, 64) for each in files)
    assert script.scores(SpanAnswer(), train, test, 64) == {
        "exact_match": {"after the rarest token": 1.0},
        "f1": {"after the rarest token": 1.0},
    }


def test_the_bigram_model_against_its_definition(script: ModuleType) -> None:
    vocabulary = 9
    generator = np.random.default_rng(0)
    contexts, targets = generator.integers(1, 7, (2, 60))
    model = script.CountModels(contexts, targets, vocabulary)
    singles = Counter(targets.tolist())
    after: dict[int, Counter[int]] = defaultdict(Counter)
    for context, target in zip(contexts.tolist(), targets.tolist(), strict=True):
        after[context][target] += 1

    def unigram(token: int) -> float:
        return (singles[token] + script.INITIAL_COUNT) / (60 + script.INITIAL_COUNT * vocabulary)

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


def test_a_token_between_two_neighbours_against_its_definition(script: ModuleType) -> None:
    """The bigram model as a Markov chain: the joint probability of the row, normalised."""
    rows = [[CLS, 5, 6, 5, 7, SEP], [CLS, 6, 7, SEP], [CLS, 5, 5, 8, 6, SEP]]
    vocabulary = 10
    counted = script.MaskedCounts(Ragged.of(rows), vocabulary)
    pairs = [pair for row in rows for pair in pairwise(row)]
    chain = script.CountModels(*np.array(pairs).T, vocabulary)

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
    script: ModuleType, text: TextFiles, vocabulary: Vocabulary
) -> None:
    """The count models of masked tokens see [MASK] where the model does."""
    task = MaskedTokens(predicted=0.5)
    examples = task.encode(text, "train", vocabulary, 24)
    counted = script.MaskedCounts(examples.rows, len(vocabulary))
    rows = [row.tolist() for row in examples.rows]
    n_inner = sum(len(row) - 2 for row in rows)
    token = N_SPECIALS + 5
    expected = (Counter(t for row in rows for t in row[1:-1])[token] + script.INITIAL_COUNT) / (
        n_inner + script.INITIAL_COUNT * len(vocabulary)
    )
    assert counted.counts.unigram[token] == pytest.approx(expected)
    batch = examples.batch(range(8), None)
    left, right, expected_tokens = script.neighbours([batch])
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
