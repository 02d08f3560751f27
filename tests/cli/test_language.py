"""`triptych train`, `evaluate` and `sample language` in this process, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import triptych
from triptych.errors import UserError

PACKAGE = "triptych.domains.language"
TRAINER = {"max_steps": 4, "val_check_interval": 2, "check_val_every_n_epoch": None}
TRAINER |= {"num_sanity_val_steps": 0, "accelerator": "cpu"}
BASES = {
    "masked": ("encoder", "masked.MaskedTokens", {}),
    "next_sentence": ("encoder", "masked.MaskedTokens", {"next_sentence": True}),
    "next": ("decoder", "next_token.NextToken", {}),
}
HEADS = {
    "classification": ("labelled.Classification", "one"),
    "entailment": ("labelled.Entailment", "two"),
    "similarity": ("labelled.Similarity", "two"),
    "choice": ("labelled.MultipleChoice", "choice"),
}
METRICS = {
    "masked": {"nats_per_masked_token", "masked_accuracy"},
    "next_sentence": {"nats_per_masked_token", "masked_accuracy", "next_sentence_accuracy"},
    "next": {"nats_per_token", "perplexity"},
}


@pytest.fixture(autouse=True)
def text(tmp_path: Path) -> Path:
    """text.txt, and a table for each kind of head beside it."""
    text = [f"The dog number {n} runs to the house.\nIt is {n} years old.\n" for n in range(40)]
    tables = {
        "one": [f"the dog {n} runs\tdog\nit is a house {n}\thouse" for n in range(10)],
        "two": [f"the dog {n}\tit runs\tyes\nit is {n}\tthe house\tno" for n in range(10)],
        "choice": [f"the dog {n}\truns\tis\tyears\t{1 + n % 3}" for n in range(20)],
    }
    for name, lines in tables.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "text.txt").write_text("\n".join(text), encoding="utf-8")
    return tmp_path / "text.txt"


def write_settings(folder: Path, name: str, task: str, kind: str, file: str, **init: Any) -> Path:
    files = {split: [file] for split in ("train", "validation", "test")}
    source = {
        "class_path": f"{PACKAGE}.sources.{kind}",
        "init_args": {"directory": ".", "files": files},
    }
    plain = {
        "data": {"source": source, "vocabulary_size": 60, "max_tokens": 64, "max_length": 32},
        "task": {"class_path": f"{PACKAGE}.tasks.{task}", "init_args": init},
        "model": {"transformer": {"n_layers": 1, "d_model": 16, "n_heads": 2, "dropout": 0.1}},
        "run": {"wandb": "off", "name": name},
        "trainer": TRAINER,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    return path


def settings_of(folder: Path, kind: str) -> Path:
    """Settings of a language model without labels."""
    _, task, init = BASES[kind]
    return write_settings(folder, kind, task, "TextFiles", "text.txt", **init)


@pytest.fixture
def trained(cli, tmp_path: Path) -> Callable[..., Path]:
    """Train with a settings file; the last checkpoint."""

    def run(path: Path, *options: Any) -> Path:
        answer = cli("train", "language", "--config", path, *options)
        assert answer.code == 0, answer.err
        return tmp_path / f"runs/{path.stem}/checkpoints/last.ckpt"

    return run


@pytest.fixture
def train(trained, tmp_path: Path) -> Callable[..., Path]:
    return lambda kind, *options: trained(settings_of(tmp_path, kind), *options)


@pytest.fixture
def fine_tune(trained, tmp_path: Path) -> Callable[..., Path]:
    """Train a model with labels."""

    def run(head: str, *options: Any, name: str | None = None, **init: Any) -> Path:
        task, table = HEADS[head]
        source = ("TabSeparated", f"{table}.tsv")
        return trained(write_settings(tmp_path, name or head, task, *source, **init), *options)

    return run


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]


@pytest.mark.parametrize("kind", BASES)
def test_train_and_evaluate(cli, train, tmp_path: Path, kind: str) -> None:
    checkpoint = train(kind)
    command = ["evaluate", "language", "--checkpoint", checkpoint, "--limit", 7]
    answer = cli(*command, "--json", "score.json")
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "score.json").read_text())
    assert set(result["metrics"]) == METRICS[kind]
    assert result["count"] == 7
    python = triptych.load(checkpoint).evaluate("test", limit=7, batch_size=1)
    assert python.metrics == pytest.approx(result["metrics"], rel=1e-4)
    small = cli(*command, "--dtype", "int8")
    assert small.code == 0, small.err


@pytest.mark.slow
def test_questions_are_answered_out_of_a_document(
    cli, refused, trained, train, tmp_path: Path
) -> None:
    rows = [f"how old?\tthe dog {n} runs. it is {n} years old.\t{n} years" for n in range(20)]
    (tmp_path / "asked.tsv").write_text("\n".join(rows), encoding="utf-8")
    asked = write_settings(tmp_path, "asked", "span.SpanAnswer", "TabSeparated", "asked.tsv")
    of = ["language", "--checkpoint", trained(asked, "--run.start.init_from", train("masked"))]
    answer = cli("evaluate", *of, "--json", "score.json", "--dtype", "int8")
    assert answer.code == 0, answer.err
    metrics = json.loads((tmp_path / "score.json").read_text())["metrics"]
    assert metrics.keys() == {"nats_per_window", "exact_match", "f1"}
    (tmp_path / "text.md").write_text("The Dog\n\nruns to the House.", encoding="utf-8")
    document = ["--document", "text.md"]
    answer = cli("sample", *of, *document, "--prompt", "Who runs?", "--out", "answers")
    assert answer.code == 0, answer.err
    question, found, _ = (tmp_path / "answers/answers.tsv").read_text().split("\t")
    assert question == "Who runs?"
    assert found in "The Dog runs to the House."
    assert found in answer.err
    refused("sample", *of, "--prompt", "Who runs?", "--out", "x", says=["expected --document"])
    refused("sample", *of, *document, "--out", "x", says=["without a question"])
    none = ["--document", "none.md", "--prompt", "Who?"]
    refused("sample", *of, *none, "--out", "x", says=["none.md"])
    document += ["--prompt", "Who?"]
    other = ["sample", "language", "--checkpoint", train("next"), *document, "--out", "x"]
    refused(*other, says=["NextToken answers no questions"])
    start = ["--run.start.init_from", train("next", "--run.name", "again"), "--run.name", "z"]
    answer = cli("train", "language", "--config", asked, *start)
    assert answer.code == 2
    assert "NextToken without encoder" in answer.err


def test_a_resumed_run_is_the_same(train, tmp_path: Path) -> None:
    whole = weights(train("masked"))
    parts = tmp_path / "runs/parts/checkpoints/last.ckpt"
    train("masked", "--run.name", "parts", "--trainer.max_steps", 2)
    half = weights(parts)
    train("masked", "--run.name", "parts", "--resume")
    resumed = weights(parts)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not all(torch.equal(whole[name], half[name]) for name in whole)


def test_a_run_of_another_task_cannot_be_resumed(refused, train, tmp_path: Path) -> None:
    train("masked")
    other = ["--resume", "--task", f"{PACKAGE}.tasks.next_token.NextToken"]
    says = ["cannot be resumed: task.class_path was"]
    refused("train", "language", "--config", tmp_path / "masked.yaml", *other, says=says)


def test_sample_writes_text_after_a_prompt(cli, train, tmp_path: Path) -> None:
    checkpoint = train("next")
    command = ["sample", "language", "--checkpoint", checkpoint, "--count", 3]
    command += ["--prompt", "The Dog"]
    answer = cli(*command, "--out", "texts", "--seed", 5)
    assert answer.code == 0, answer.err
    texts = [path.read_text() for path in sorted((tmp_path / "texts").iterdir())]
    assert len(texts) == 3
    assert all(text.startswith("the dog") for text in texts)
    assert not any("[" in text for text in texts)
    model = triptych.load(checkpoint)
    assert model.sample(3, prompt="The Dog", seed=5) == [text[:-1] for text in texts]
    assert model.sample(3, prompt="The Dog", seed=6) != [text[:-1] for text in texts]
    short = model.sample(1, prompt="The", length=2)[0]
    assert len(model.vocabulary.tokenizer.encode(short)) <= 2
    for options in ({"length": 33}, {"prompt": "the dog", "length": 2}, {"prompt": "the " * 40}):
        with pytest.raises(UserError, match="expected a prompt shorter than length"):
            model.sample(1, **options)


def test_a_masked_token_model_fills_masks(cli, refused, train, tmp_path: Path) -> None:
    checkpoint = train("masked")
    command = ["sample", "language", "--checkpoint", checkpoint]
    prompt = "The [MASK] runs to the [MASK]."
    answer = cli(*command, "--out", "texts", "--prompt", prompt, "--count", 3, "--temperature", 0)
    assert answer.code == 0, answer.err
    texts = {path.read_text() for path in (tmp_path / "texts").iterdir()}
    assert len(texts) == 1, "at temperature 0 each mask has one filling"
    assert texts.pop().startswith("the")
    model = triptych.load(checkpoint)
    assert len(set(model.sample(20, prompt=prompt, temperature=5.0))) > 10
    says = ["the prompt has 0 [MASK]", "expected one or more"]
    refused(*command, "--out", "more", "--prompt", "The dog", says=says)
    refused(*command, "--out", "more", "--prompt", "a dog " * 40 + "[MASK]", says=["at most 32"])


def test_a_validation_writes_a_table(train, tmp_path: Path) -> None:
    for kind, columns in (("masked", "read,predicted,right"), ("next", "text")):
        train(kind)
        tables = sorted((tmp_path / f"runs/{kind}/samples").rglob("texts.csv"))
        assert len(tables) == 2
        lines = tables[0].read_text().splitlines()
        assert lines[0] == columns
        assert len(lines) > 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--data.max_length", 4], ["max_length is 4", "expected at least 8"]),
        (["--data.vocabulary_size", 3], ["vocabulary_size", "at least 6"]),
        (["--task", "Translate"], ["task", "MaskedTokens"]),
        (["--data.source.files", '{"train": ["a.txt"]}'], ["a.txt does not exist"]),
    ],
)
def test_impossible_settings_are_refused(
    refused, tmp_path: Path, options: list[Any], says: list[str]
) -> None:
    path = settings_of(tmp_path, "masked")
    refused("train", "language", "--config", path, *options, says=says)


def test_a_run_goes_on_with_the_words_of_other_text(cli, train, tmp_path: Path, text: Path) -> None:
    checkpoint = train("masked")
    text.write_text("A bird sings in the tree.\n" * 30, encoding="utf-8")
    start = ["--run.start.init_from", checkpoint, "--run.name", "more"]
    path = tmp_path / "masked.yaml"
    answer = cli(
        "train", "language", "--config", path, *start, "--run.start.init_vocabulary", "data"
    )
    assert answer.code == 0, answer.err
    assert "tokens copied" in answer.out


@pytest.mark.parametrize("base", ["encoder", "decoder"])
@pytest.mark.parametrize("head", HEADS)
def test_train_evaluate_and_label(cli, fine_tune, tmp_path: Path, base: str, head: str) -> None:
    checkpoint = fine_tune(head, base=base)
    command = ["--checkpoint", checkpoint]
    answer = cli("evaluate", "language", *command, "--json", "score.json")
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "score.json").read_text())
    assert set(result["metrics"]) == {"nats_per_example", "accuracy"}
    simple = result["details"]["simple_models"]["accuracy"]
    assert f"most_frequent {simple['most_frequent']:.4f}" in answer.out
    model = triptych.load(checkpoint)
    assert model.evaluate("test", batch_size=1).metrics == pytest.approx(result["metrics"])

    table = (tmp_path / f"{HEADS[head][1]}.tsv").read_text().splitlines()
    (tmp_path / "lines.txt").write_text("".join(f"{x.rpartition(chr(9))[0]}\n" for x in table))
    answer = cli("sample", "language", *command, "--lines", "lines.txt", "--out", "found")
    assert answer.code == 0, answer.err
    found = [x.split("\t") for x in (tmp_path / "found/labels.tsv").read_text().splitlines()]
    right = [x.rpartition("\t")[2] == label for x, (label, _) in zip(table, found, strict=True)]
    assert sum(right) / len(right) == pytest.approx(result["metrics"]["accuracy"])
    assert all(0 < float(probability) <= 1 for _, probability in found)


def copied(base: str, before: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of a language model by their names under a head."""
    if base == "decoder":
        return {name.replace("model.", "model.decoder.", 1): w for name, w in before.items()}
    kept = ("model.encoder.", "model.pooler.")
    return {name: weight for name, weight in before.items() if name.startswith(kept)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASES)
def test_weights_are_copied_and_frozen_ones_stay(train, fine_tune, kind: str) -> None:
    base = BASES[kind][0]
    first = train(kind)
    wanted = copied(base, weights(first))
    start = ["--run.start.init_from", first]
    parts = "[task_head, pooler]" if kind == "masked" else "[task_head]"
    only = ["--run.finetune.train_only", parts]
    frozen = weights(fine_tune("classification", *start, *only, base=base, name="frozen"))
    new = {name for name in frozen if name not in wanted}
    assert all("task_head" in name or "pooler" in name for name in new)
    assert any("pooler" in name for name in new) == (kind == "masked")
    assert all(torch.equal(frozen[name], weight) for name, weight in wanted.items())
    assert frozen["model.task_head.linear.weight"].abs().sum() > 0
    tuned = weights(fine_tune("classification", *start, base=base, name="tuned"))
    changed = [name for name, weight in wanted.items() if not torch.equal(tuned[name], weight)]
    assert len(changed) > len(wanted) / 2
    # A learning rate of almost 0 leaves the copied weights as they were.
    rate = ["--optim.learning_rate", 1e-12]
    still = weights(fine_tune("classification", *start, *rate, base=base, name="still"))
    for name, weight in wanted.items():
        torch.testing.assert_close(still[name], weight, rtol=0, atol=1e-9)


def test_a_head_is_taken_over_with_its_labels_alone(fine_tune, tmp_path: Path) -> None:
    first = fine_tune("classification")
    rate = ["--optim.learning_rate", 1e-12]
    head = "model.task_head.linear.bias"
    same = fine_tune("classification", "--run.start.init_from", first, *rate, name="same")
    torch.testing.assert_close(weights(same)[head], weights(first)[head], rtol=0, atol=1e-9)
    table = tmp_path / "one.tsv"
    table.write_text(table.read_text().replace("\tdog", "\tzebra"))
    other = fine_tune("classification", "--run.start.init_from", first, *rate, name="other")
    assert weights(other)[head].abs().max() < 1e-9
    assert weights(first)[head].abs().max() > 1e-9


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--task.base", "decoder"], ["MaskedTokens", "without decoder"]),
        (
            ["--run.finetune.train_only", "[task_head]"],
            ["pooler", "run.finetune.train_only"],
        ),
        (["--run.finetune.train_only", "[nothing]"], ["run.finetune.train_only", "'nothing'"]),
        (["--data.max_length", 16], ["positions.table.weight"]),
    ],
)
def test_impossible_starts_are_refused(
    cli, train, fine_tune, tmp_path: Path, options: list[Any], says: list[str]
) -> None:
    learned = ["--model.transformer.positions", "triptych.core.positions.Learned"]
    masked = train("masked", *learned)
    fine_tune("classification", *learned)
    command = ["train", "language", "--config", tmp_path / "classification.yaml", *learned]
    answer = cli(*command, "--run.start.init_from", masked, "--run.name", "more", *options)
    assert answer.code == 2
    last = answer.err.splitlines()[-1]
    assert last.startswith("triptych: ")
    assert all(word in last for word in says), last
    assert not (tmp_path / "runs/more/checkpoints").exists()


def test_lines_are_for_models_with_labels(refused, train, fine_tune, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the dog\n\nthe house\n")
    language = ["sample", "language", "--out", "found", "--checkpoint"]
    labels = fine_tune("classification")
    refused(*language, labels, says=["Classification", "--lines"])
    refused(*language, labels, "--lines", "none.txt", says=["--lines none.txt does not exist"])
    refused(*language, labels, "--lines", "lines.txt", says=["line 2 has", "empty"])
    refused(*language, train("masked"), "--lines", "lines.txt", says=["MaskedTokens"])
