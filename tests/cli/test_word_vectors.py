"""Runs that start from word vectors: coverage, frozen rows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import triptych
from triptych.cli.main import main


@pytest.fixture
def settings(tmp_path: Path, tiny_settings: Any):
    content = tiny_settings("translation")
    content["optim"] = {
        "learning_rate": 0.1,
        "optimizer": {"class_path": "AdamW", "init_args": {"weight_decay": 0.5}},
        "schedule": {"class_path": "InverseSqrt", "init_args": {"warmup_steps": 1}},
    }
    content["run"]["directory"] = str(tmp_path / "runs")
    content["data"]["tokenizer"] = {"class_path": "triptych.text.byte_level.Words"}
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(content))
    return path, content["model"]["transformer"]["d_model"]


@pytest.mark.parametrize("freeze", [True, False])
def test_a_run_starts_from_the_vectors_and_keeps_frozen_ones(freeze, settings, tmp_path, capsys):
    config, width = settings
    random = torch.Generator().manual_seed(0)
    vectors = {word: torch.randn(width, generator=random) for word in ("one", "two", "ten")}
    file = tmp_path / "vectors.txt"
    rows_of_file = (f"{word} {' '.join(map(str, row.tolist()))}" for word, row in vectors.items())
    file.write_text("\n".join(rows_of_file))
    given = [
        "--run.start.word_vectors",
        str(file),
        "--run.start.freeze_word_vectors",
        str(freeze).lower(),
    ]
    command = ["train", "translation", "--config", str(config), *given]
    assert main(command) == 0
    said = capsys.readouterr().out
    file_of_run = str(tmp_path / "runs/run/checkpoints/last.ckpt")

    def rows() -> dict[str, torch.Tensor]:
        model = triptych.load(file_of_run, device="cpu")  # the moving average, if there is one
        table = model.model.source_embedding.table.weight
        return {w: table[r] for r, w in enumerate(model.vocabulary.source.words) if w in vectors}

    words = triptych.load(file_of_run, device="cpu").vocabulary.source.words
    covered, known = sum(word in vectors for word in words), sum(map(bool, words))
    assert f"{file}: {covered} of {known} tokens" in said
    (start,) = json.loads((tmp_path / "runs/run/versions.json").read_text())["starts"]
    assert start["word_vectors"] == {"tokens": len(words), "words": known, "covered": covered}
    for word, row in rows().items():
        assert torch.equal(row, vectors[word]) == freeze, word
    # A frozen row stays frozen in the rest of the run, which no longer needs the file.
    file.unlink()
    assert main([*command, "--resume", "--trainer.max_steps", "9"]) == 0
    for word, row in rows().items():
        assert torch.equal(row, vectors[word]) == freeze, word


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--run.start.word_vectors", "absent.txt"], "absent.txt cannot be read"),
        (["--run.start.freeze_word_vectors", "true"], "needs word_vectors"),
        (["--run.start.word_vectors", "a", "--run.start.init_from", "b"], "expected one"),
    ],
)
def test_wrong_options_end_in_one_sentence_and_leave_no_run(
    options, said, settings, tmp_path, capsys
):
    assert main(["train", "translation", "--config", str(settings[0]), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
