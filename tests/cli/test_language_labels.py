"""Tasks with labels: train, evaluate, label lines, and start from a language model's weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import triptych

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


@pytest.fixture(autouse=True)
def texts(tmp_path: Path) -> None:
    text = [f"The dog number {n} runs to the house.\nIt is {n} years old.\n" for n in range(20)]
    tables = {
        "one": [f"the dog {n} runs\tdog\nit is a house {n}\thouse" for n in range(10)],
        "two": [f"the dog {n}\tit runs\tyes\nit is {n}\tthe house\tno" for n in range(10)],
        "choice": [f"the dog {n}\truns\tis\tyears\t{1 + n % 3}" for n in range(20)],
    }
    (tmp_path / "text.txt").write_text("\n".join(text), encoding="utf-8")
    for name, lines in tables.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def train(cli, tmp_path: Path) -> Callable[..., Path]:
    def run(name: str, task: str, source: tuple[str, str], *options: Any, **init: Any) -> Path:
        kind, file = source
        files = {split: [file] for split in ("train", "validation", "test")}
        plain = {
            "data": {
                "source": {
                    "class_path": f"{PACKAGE}.sources.{kind}",
                    "init_args": {"directory": ".", "files": files},
                },
                "vocabulary_size": 60,
                "max_tokens": 64,
                "max_length": 32,
            },
            "task": {"class_path": f"{PACKAGE}.tasks.{task}", "init_args": init},
            "model": {"transformer": {"n_layers": 1, "d_model": 16, "n_heads": 2}},
            "run": {"wandb": "off", "name": name},
            "trainer": TRAINER,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(plain), encoding="utf-8")
        answer = cli("train", "language", "--config", path, *options)
        assert answer.code == 0, answer.err
        return tmp_path / f"runs/{name}/checkpoints/last.ckpt"

    return run


def pretrain(train, kind: str) -> Path:
    _, task, init = BASES[kind]
    return train(kind, task, ("TextFiles", "text.txt"), **init)


def fine_tune(train, head: str, *options: Any, name: str | None = None, **init: Any) -> Path:
    task, table = HEADS[head]
    source = ("TabSeparated", f"{table}.tsv")
    return train(name or head, task, source, *options, **init)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]


@pytest.mark.parametrize("base", ["encoder", "decoder"])
@pytest.mark.parametrize("head", HEADS)
def test_train_evaluate_and_label(cli, train, tmp_path: Path, base: str, head: str) -> None:
    checkpoint = fine_tune(train, head, base=base)
    command = ["--checkpoint", checkpoint]
    answer = cli("evaluate", "language", *command, "--json", "score.json")
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "score.json").read_text())
    assert set(result["metrics"]) == {"nats_per_example", "accuracy"}
    assert "most_frequent" in result["details"]["simple_models"]["accuracy"]
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
        return {name.replace("model.", "model.reader.model.", 1): w for name, w in before.items()}
    kept = ("model.encoder.", "model.pooler.")
    return {
        name.replace("model.", "model.reader.", 1): weight
        for name, weight in before.items()
        if name.startswith(kept)
    }


@pytest.mark.parametrize("kind", BASES)
def test_weights_are_copied_and_frozen_ones_stay(train, kind: str) -> None:
    base = BASES[kind][0]
    first = pretrain(train, kind)
    wanted = copied(base, weights(first))
    start = ["--run.start.init_from", first]
    parts = "[task_head, pooler]" if kind == "masked" else "[task_head]"
    only = ["--run.finetune.train_only", parts]
    frozen = weights(fine_tune(train, "classification", *start, *only, base=base, name="frozen"))
    new = {name for name in frozen if name not in wanted}
    assert all("task_head" in name or "pooler" in name for name in new)
    assert any("pooler" in name for name in new) == (kind == "masked")
    assert all(torch.equal(frozen[name], weight) for name, weight in wanted.items())
    assert frozen["model.task_head.linear.weight"].abs().sum() > 0
    tuned = weights(fine_tune(train, "classification", *start, base=base, name="tuned"))
    changed = [name for name, weight in wanted.items() if not torch.equal(tuned[name], weight)]
    assert len(changed) > len(wanted) / 2
    # A learning rate of almost 0 leaves the copied weights as they were.
    rate = ["--optim.learning_rate", 1e-12]
    still = weights(fine_tune(train, "classification", *start, *rate, base=base, name="still"))
    for name, weight in wanted.items():
        torch.testing.assert_close(still[name], weight, rtol=0, atol=1e-9)


def test_a_head_is_taken_over_with_its_labels_alone(train, cli, tmp_path: Path) -> None:
    first = fine_tune(train, "classification")
    rate = ["--optim.learning_rate", 1e-12]
    head = "model.task_head.linear.bias"
    same = fine_tune(train, "classification", "--run.start.init_from", first, *rate, name="same")
    torch.testing.assert_close(weights(same)[head], weights(first)[head], rtol=0, atol=1e-9)
    table = tmp_path / "one.tsv"
    table.write_text(table.read_text().replace("\tdog", "\tzebra"))
    other = fine_tune(train, "classification", "--run.start.init_from", first, *rate, name="other")
    assert weights(other)[head].abs().max() < 1e-9
    assert weights(first)[head].abs().max() > 1e-9


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--task.base", "decoder"], ["MaskedTokens", "task.base is decoder"]),
        (
            ["--run.finetune.train_only", "[task_head]"],
            ["reader.pooler", "run.finetune.train_only"],
        ),
        (["--run.finetune.train_only", "[nothing]"], ["run.finetune.train_only", "'nothing'"]),
        (["--data.max_length", 16], ["positions.table.weight"]),
    ],
)
def test_impossible_starts_are_refused(
    cli, train, tmp_path: Path, options: list[Any], says: list[str]
) -> None:
    learned = ["--model.transformer.positions", "triptych.core.positions.Learned"]
    _, task, init = BASES["masked"]
    source = ("TextFiles", "text.txt")
    masked = train("masked", task, source, *learned, **init)
    fine_tune(train, "classification", *learned)
    command = ["train", "language", "--config", tmp_path / "classification.yaml", *learned]
    answer = cli(*command, "--run.start.init_from", masked, "--run.name", "more", *options)
    assert answer.code == 2
    last = answer.err.splitlines()[-1]
    assert last.startswith("triptych: ")
    assert all(word in last for word in says), last
    assert not (tmp_path / "runs/more/checkpoints").exists()


def test_lines_are_for_models_with_labels(refused, train, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the dog\n\nthe house\n")
    language = ["sample", "language", "--out", "found", "--checkpoint"]
    labels = fine_tune(train, "classification")
    refused(*language, labels, says=["Classification", "--lines"])
    refused(*language, labels, "--lines", "none.txt", says=["--lines none.txt does not exist"])
    refused(*language, labels, "--lines", "lines.txt", says=["line 2 has", "empty"])
    refused(*language, pretrain(train, "masked"), "--lines", "lines.txt", says=["MaskedTokens"])
