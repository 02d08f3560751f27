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

SIZES = {"n_layers": 1, "d_model": 16, "n_heads": 2, "dropout": 0.1}
TRAINER = {
    "max_steps": 4,
    "val_check_interval": 2,
    "check_val_every_n_epoch": None,
    "num_sanity_val_steps": 0,
    "accelerator": "cpu",
}
TASKS = {
    "masked": "triptych.domains.language.tasks.masked.MaskedTokens",
    "next_sentence": "triptych.domains.language.tasks.masked.MaskedTokens",
    "next": "triptych.domains.language.tasks.next_token.NextToken",
}
METRICS = {
    "masked": {
        "nats_per_masked_token", "masked_accuracy", "pseudo_perplexity", "one_mask_accuracy",
    },
    "next_sentence": {
        "nats_per_masked_token", "masked_accuracy", "pseudo_perplexity", "one_mask_accuracy",
        "next_sentence_accuracy",
    },
    "next": {"nats_per_token", "perplexity"},
}  # fmt: skip


def settings(kind: str, **run: Any) -> dict[str, Any]:
    files = {split: ["text.txt"] for split in ("train", "validation", "test")}
    source = {
        "class_path": "triptych.domains.language.sources.TextFiles",
        "init_args": {"directory": ".", "files": files},
    }
    task: dict[str, Any] = {"class_path": TASKS[kind]}
    if kind == "next_sentence":
        task["init_args"] = {"next_sentence": True}
    return {
        "data": {"source": source, "vocabulary_size": 60, "max_tokens": 64, "max_length": 32},
        "task": task,
        "model": {"transformer": SIZES},
        "run": {"wandb": "off", "name": kind, **run},
        "trainer": TRAINER,
    }


def write_settings(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.yaml"
    path.write_text(yaml.safe_dump(settings(kind), sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    lines = [f"The dog number {n} runs to the house.\nIt is {n} years old.\n" for n in range(40)]
    file = tmp_path / "text.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.fixture
def train(cli, tmp_path: Path, text: Path) -> Callable[..., Path]:
    def run(kind: str, *options: Any) -> Path:
        path = write_settings(tmp_path, kind)
        answer = cli("train", "language", "--config", path, *options)
        assert answer.code == 0, answer.err
        return tmp_path / f"runs/{kind}/checkpoints/last.ckpt"

    return run


@pytest.mark.parametrize("kind", TASKS)
def test_train_and_evaluate(cli, train, tmp_path: Path, kind: str) -> None:
    checkpoint = train(kind)
    command = ["evaluate", "language", "--checkpoint", checkpoint, "--limit", 7]
    answer = cli(*command, "--json", "score.json", "--pseudo_examples", 3)
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "score.json").read_text())
    assert set(result["metrics"]) == METRICS[kind]
    assert result["count"] == 7
    for scores in result["details"]["simple_models"].values():
        for name, value in scores.items():
            assert f"{name} {value:.4f}" in answer.out
    assert {"unigram", "bigram"} <= set(scores)
    python = triptych.load(checkpoint).evaluate("test", limit=7, pseudo_examples=3, batch_size=1)
    assert python.metrics == pytest.approx(result["metrics"], rel=1e-4)
    small = cli(*command, "--dtype", "int8")
    assert small.code == 0, small.err


def test_a_resumed_run_is_the_same(train, tmp_path: Path) -> None:
    whole = torch.load(train("masked"), weights_only=True)["state_dict"]
    parts = tmp_path / "runs/parts/checkpoints/last.ckpt"
    train("masked", "--run.name", "parts", "--trainer.max_steps", 2)
    half = torch.load(parts, weights_only=True)["state_dict"]
    train("masked", "--run.name", "parts", "--resume")
    resumed = torch.load(parts, weights_only=True)["state_dict"]
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not all(torch.equal(whole[name], half[name]) for name in whole)


def test_a_run_of_another_task_cannot_be_resumed(refused, train, tmp_path: Path) -> None:
    train("masked")
    says = ["cannot be resumed: task.class_path was", "(the model and its scores belong"]
    config = tmp_path / "masked.yaml"
    refused(
        *("train", "language", "--config", config, "--resume", "--task", TASKS["next"]), says=says
    )


def test_sample_writes_text_after_a_prompt(cli, train, tmp_path: Path) -> None:
    checkpoint = train("next")
    command = [
        "sample",
        "language",
        "--checkpoint",
        checkpoint,
        "--count",
        3,
        "--prompt",
        "The Dog",
    ]
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
    refused, tmp_path: Path, text: Path, options: list[Any], says: list[str]
) -> None:
    path = write_settings(tmp_path, "masked")
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
