"""Task heads: loss and score against plain loops, padding, order, sources of labelled text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from dataclass_rules import changeable_dataclasses, names_of_many_defaults, positional_options

from triptych.core.models.encoder_only import SequenceTaskModel
from triptych.domains.language.metrics import simple_accuracies, words_of
from triptych.domains.language.model import CLS, SEP, ModelConfig, Vocabulary
from triptych.domains.language.sources import Labelled, TabSeparated
from triptych.domains.language.tasks.labelled import (
    Classification,
    Entailment,
    LabelledExamples,
    LabelledTask,
    MultipleChoice,
    Similarity,
    join_texts,
)
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.errors import UserError
from triptych.text.tokenizer import PAD
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.objective import ObjectiveConfig
from triptych.training.loading.batches import Ragged

ONE = [
    Labelled(("The dog sees a cat.",), "a"),
    Labelled(("One fish hears my horse. A cat likes the dog.",), "b"),
    Labelled(("A cat.",), "c"),
]
TWO = [
    Labelled(("The dog sees a cat.", "A cat."), "a"),
    Labelled(("One fish.", "My horse hears one fish. The red bird likes a cat."), "b"),
    Labelled(("A cat hears.", "The dog."), "b"),
]
CHOICE = [
    Labelled(("The dog sees.", "A cat.", "One fish hears.", "My horse likes the dog."), "3"),
    Labelled(("A cat.", "The red bird follows one fish.", "A dog.", "The dog."), "1"),
]
CASES = [
    (Classification, ONE, ("a", "b", "c")),
    (Entailment, TWO, ("a", "b")),
    (Similarity, TWO, ("a", "b")),
    (MultipleChoice, CHOICE, ("1", "2", "3")),
]
READERS = {
    "cls": {"base": "encoder"},
    "mean": {"base": "encoder", "pooling": "mean"},
    "decoder": {"base": "decoder"},
}


def ready(
    task: LabelledTask,
    examples: list[Labelled],
    labels: tuple[str, ...],
    vocabulary: Vocabulary,
    config: ModelConfig,
) -> tuple[SequenceTaskModel, LabelledExamples]:
    words = Vocabulary(vocabulary.tokenizer, labels)
    torch.manual_seed(0)
    model = task.build_model(config, words, 32).double().eval()
    torch.nn.init.normal_(model.task_head.linear.weight)
    torch.nn.init.normal_(model.task_head.linear.bias)
    return model, task.encode_examples(examples, words, 32)


def vector(model: SequenceTaskModel, reader: str, texts: list[list[int]]) -> torch.Tensor:
    """The vector of one row, without padding: by the definitions."""
    if reader != "decoder":
        tokens, segments = [CLS], [0]
        for number, text in enumerate(texts):
            tokens += [*text, SEP]
            segments += [number] * (len(text) + 1)
        features = model.encoder(torch.tensor([tokens]), torch.tensor([segments]))
        if reader == "mean":
            return torch.stack([features[0, t] for t in range(len(tokens))]).mean(0)
        return torch.tanh(model.pooler.linear(features[0, 0]))
    tokens = [token for text in texts for token in [*text, SEP]]
    decoder = model.decoder
    # Any token may follow: the features at its position have not read it.
    return decoder.features(torch.tensor([[*tokens, 7]]))[0, len(tokens)]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("kind", "examples", "labels"), CASES)
def test_loss_and_scores_equal_a_plain_loop(
    reader: str, kind, examples, labels, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    task = kind(**READERS[reader])
    model, encoded = ready(task, examples, labels, vocabulary, model_config)
    encode = vocabulary.tokenizer.encode
    weight, bias = model.task_head.linear.weight, model.task_head.linear.bias
    nats, right = [], []
    for example in examples:
        texts = [encode(text) for text in example.texts]
        if kind is Similarity:
            both = vector(model, reader, texts) + vector(model, reader, texts[::-1])
            logits = weight @ both + bias
        elif kind is MultipleChoice:
            each = [vector(model, reader, [texts[0], text]) for text in texts[1:]]
            logits = torch.stack([weight[0] @ one + bias[0] for one in each])
        else:
            logits = weight @ vector(model, reader, texts) + bias
        answer = labels.index(example.label)
        nats.append(torch.log(logits.exp().sum()) - logits[answer])
        right.append(int(logits.argmax()) == answer)

    # One batch, so that the shorter rows have padding.
    batch = encoded.batch(range(len(examples)), None)
    assert bool(batch.padding.any())
    loss, count = ObjectiveConfig().training_loss(task.predictions, model, batch, [])
    assert count == len(examples)
    torch.testing.assert_close(loss, torch.stack(nats).mean())
    metrics = task.metrics(sum_scores(model, lambda b: task.score(model, b), [batch]))
    assert metrics["nats_per_example"] == pytest.approx(torch.stack(nats).mean().item())
    assert metrics["accuracy"] == pytest.approx(np.mean(right))
    probabilities = task.probabilities(model, encoded, 32)
    chosen = [probabilities[i, labels.index(e.label)] for i, e in enumerate(examples)]
    torch.testing.assert_close(
        torch.stack(chosen), torch.exp(-torch.stack(nats)).float(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("kind", "examples", "labels"), CASES)
def test_a_new_model_gives_all_classes_equal_probability(
    reader: str, kind, examples, labels, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    task = kind(**READERS[reader])
    words = Vocabulary(vocabulary.tokenizer, labels)
    model = task.build_model(model_config, words, 32).eval()
    found = task.probabilities(model, task.encode_examples(examples, words, 32), 64)
    torch.testing.assert_close(found, torch.full_like(found, 1 / len(labels)))


@pytest.mark.parametrize("reader", READERS)
def test_padding_and_the_other_rows_of_a_batch_do_not_change_logits(
    reader: str, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    task = Entailment(**READERS[reader])
    model, encoded = ready(task, TWO, ("a", "b"), vocabulary, model_config)
    together = task.logits(model, encoded.batch([0, 1, 2], None))
    for item in range(3):
        alone = encoded.batch([item], None)
        torch.testing.assert_close(task.logits(model, alone)[0], together[item])
        wider = torch.nn.functional.pad(alone.tokens, (0, 4), value=PAD)
        padded = alone._replace(tokens=wider)
        torch.testing.assert_close(task.logits(model, padded)[0], together[item])


@pytest.mark.parametrize("reader", READERS)
def test_similarity_has_no_order_and_entailment_has_one(
    reader: str, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    swapped = [Labelled(each.texts[::-1], each.label) for each in TWO]
    for kind, same in ((Similarity, True), (Entailment, False)):
        task = kind(**READERS[reader])
        model, one = ready(task, TWO, ("a", "b"), vocabulary, model_config)
        other = task.encode_examples(swapped, Vocabulary(vocabulary.tokenizer, ("a", "b")), 32)
        first = task.logits(model, one.batch(range(3), None))
        second = task.logits(model, other.batch(range(3), None))
        assert torch.allclose(first, second) == same


@pytest.mark.parametrize("before", ["cls", "mean"])
@pytest.mark.parametrize("now", ["cls", "mean"])
@pytest.mark.parametrize("language_model", [True, False])
def test_a_pooler_is_taken_over_where_both_models_have_one(
    language_model: bool, now: str, before: str, vocabulary: Vocabulary, model_config: ModelConfig
) -> None:
    words = Vocabulary(vocabulary.tokenizer, ("a", "b"))
    own = f"{Classification.__module__}.Classification"
    if language_model:
        model = MaskedTokens(next_sentence=before == "cls").build_model(model_config, words, 32)
    else:
        model = Classification(pooling=before).build_model(model_config, words, 32)
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    kind = "MaskedTokens" if language_model else own
    header = {"task": {"class_path": kind}, "vocabulary": {"labels": ["a", "b"]}}
    task = Classification(pooling=now)
    target = task.build_model(model_config, words, 32).state_dict()
    names = [f"model.{name}" for name in target]
    found = task.initial_weights(header, ("a", "b"), weights, names)
    anew = {f"model.{name}" for name in target} - found.weights.keys()
    assert not found.weights.keys() - {f"model.{name}" for name in target}
    assert {".".join(name.split(".")[:-2]) for name in anew} == (
        {"model.task_head"} if language_model else set()
    ) | ({"model.pooler"} if (now, before) == ("cls", "mean") else set())
    assert all(name.startswith(found.new) for name in anew)
    for name, weight in found.weights.items():
        assert torch.equal(weight, weights[name])


def test_the_longer_text_of_a_pair_is_cut() -> None:
    long, short = list(range(10, 30)), [40, 41]
    row = join_texts([long, short], 12, with_cls=True)
    assert row == [CLS, *long[:7], SEP, 40, 41, SEP]
    row = join_texts([long, long], 13, with_cls=False)
    assert len(row) == 12
    assert row.count(SEP) == 2
    assert abs(row.index(SEP) - 5) <= 1
    assert join_texts([short], 12, with_cls=True) == [CLS, 40, 41, SEP]


def test_cut_texts_are_counted(vocabulary: Vocabulary, caplog: pytest.LogCaptureFixture) -> None:
    words = Vocabulary(vocabulary.tokenizer, ("x", "y"))
    text = "a b c"
    n_tokens = len(vocabulary.tokenizer.encode(text))
    examples = [Labelled((text,), "x"), Labelled((text * 3,), "y")]
    Classification().encode_examples(examples, words, n_tokens + 2)
    assert "1 of 2 texts" in caplog.text


def write(folder: Path, name: str, *lines: str) -> TabSeparated:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return TabSeparated(directory=str(folder), files={"train": [name]})


def test_tab_separated_lines(tmp_path: Path) -> None:
    source = write(tmp_path, "t.tsv", "A dog.\tpet", "", " A cat. \tpet", "An oak.\ttree")
    found = source.items("train")
    assert [(*each.texts, each.label) for each in found] == [
        ("A dog.", "pet"), ("A cat.", "pet"), ("An oak.", "tree"),
    ]  # fmt: skip
    assert Classification().labels(source) == ("pet", "tree")


@pytest.mark.parametrize(
    ("task", "lines", "number"),
    [
        (Classification(), ["a dog\tx", "a cat\t"], "2 .*, cell 2 is empty;"),
        (Classification(), ["a dog\tx", "a cat"], 2),
        (Classification(), ["a dog\tx", "a cat\tb\ty"], 2),
        (Classification(), ["a dog\tx", "\ty"], 2),
        (Entailment(), ["a dog\ta cat\tx", "", "a cat\ty"], 3),
        (MultipleChoice(), ["a\tb\tc\t1", "a\tb\tc\td\t2"], 2),
        (MultipleChoice(), ["a\tb\tc\t1", "a\tb\tc\t3"], 2),
    ],
)
def test_a_bad_line_is_named(
    tmp_path: Path, vocabulary: Vocabulary, task: LabelledTask, lines: list[str], number: int | str
) -> None:
    source = write(tmp_path, "bad.tsv", *lines)
    with pytest.raises(UserError, match=rf"bad\.tsv, line {number}"):
        task.encode(source, "train", Vocabulary(vocabulary.tokenizer, task.labels(source)), 32)


def test_training_examples_are_chosen_by_seed(tmp_path: Path, vocabulary: Vocabulary) -> None:
    source = write(tmp_path, "t.tsv", *("dog " * n + f"cat\t{n % 2}" for n in range(20)))
    words = Vocabulary(vocabulary.tokenizer, ("0", "1"))
    chosen = {}
    for seed in (0, 0, 1):
        task = Classification(train_examples=5, examples_seed=seed)
        encoded = task.encode(source, "train", words, 32)
        assert len(encoded) == 5
        rows = [row.tolist() for row in encoded.rows]
        assert chosen.setdefault(seed, rows) == rows
    assert chosen[0] != chosen[1]
    with pytest.raises(UserError, match="train_examples"):
        Classification(train_examples=21).encode(source, "train", words, 32)


def examples_of(rows: list[list[int]], labels: list[int], n_rows: int = 1) -> LabelledExamples:
    return LabelledExamples(Ragged.of(rows), np.array(labels), n_rows)


def test_the_bag_of_words_equals_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    text = pytest.importorskip("sklearn.feature_extraction.text")
    draw = np.random.default_rng(0)
    rows, labels = [], []
    for _ in range(120):
        label = int(draw.integers(3))
        words = draw.integers(10, 30, 6) + np.where(draw.random(6) < 0.3, 4 * label, 0)
        rows.append([CLS, *words.tolist(), SEP])
        labels.append(label)
    training, test = examples_of(rows[:60], labels[:60]), examples_of(rows[60:], labels[60:])
    sentences = [" ".join(f"w{token}" for _, token in words_of(np.array(row))) for row in rows]
    vectors = text.TfidfVectorizer(sublinear_tf=True)
    known = vectors.fit_transform(sentences[:60])
    model = linear.LogisticRegression(C=10, max_iter=1000, tol=1e-8).fit(known, labels[:60])
    wanted = model.score(vectors.transform(sentences[60:]), labels[60:])
    found = simple_accuracies(training, test, None)
    assert found["bag_of_words"] == pytest.approx(wanted, abs=1.1 / 60)
    assert found["most_frequent"] == np.mean(
        np.array(labels[60:]) == np.bincount(labels[:60]).argmax()
    )


def test_the_overlap_of_words_finds_the_candidate_with_the_shared_word() -> None:
    rows = [[CLS, 10, 11, SEP, 20, SEP], [CLS, 10, 11, SEP, 11, SEP], [CLS, 10, 11, SEP, 9, SEP]]
    examples = examples_of(rows, [1], n_rows=3)
    assert simple_accuracies(examples, examples, None)["word_overlap"] == 1.0


def test_values_of_this_package_cannot_be_changed() -> None:
    assert not changeable_dataclasses("triptych.domains.language")
    assert not positional_options("triptych.domains.language")
    found = names_of_many_defaults("triptych.domains.language")
    assert found == {"count", "directory"}


def test_a_table_without_a_label_is_refused_with_what_a_row_needs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"x\.tsv, line 1 has one cell; expected a text and"):
        write(tmp_path, "x.tsv", "a cat", "a dog").items("train")
