"""Training of a model of text: its loss, the table that it logs, shared rows of vocabularies."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from triptych.domains.language.config import Config, DataConfig
from triptych.domains.language.model import CLS, MASK, SEP, SPECIALS, ModelConfig, segments
from triptych.domains.language.sources import TabSeparated, TextFiles
from triptych.domains.language.task import LanguageTrainingModule, prepare
from triptych.domains.language.tasks.labelled import Classification
from triptych.domains.language.tasks.masked import MaskedTokens
from triptych.domains.language.tasks.next_token import NextToken
from triptych.text.tokenizer import PAD

LENGTH = 24


@pytest.fixture
def labelled(tmp_path: Path) -> TabSeparated:
    """Ten lines, of which the first words of five are a dog."""
    lines = [f"{('The dog', 'A cat')[n % 2]} sees {n} fish.\t{'dc'[n % 2]}" for n in range(10)]
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {split: [f"{split}.tsv"] for split in ("train", "validation", "test")}
    return TabSeparated(directory=str(tmp_path), files=files)


def prepared(task: Any, source: Any, model: ModelConfig) -> tuple[LanguageTrainingModule, Any, Any]:
    data = DataConfig(source=source, vocabulary_size=60, max_length=LENGTH, max_tokens=200)
    return prepare(Config(data=data, model=model, task=task))


def table(module: LanguageTrainingModule, folder: Path) -> list[dict[str, str]]:
    module.log_samples(folder)
    with (folder / "texts.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_special_ids_have_their_names() -> None:
    ids = {"[PAD]": PAD, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK}
    assert {SPECIALS[number]: number for number in ids.values()} == ids


def test_the_loss_of_next_tokens_is_their_mean_without_padding(
    text: TextFiles, model_config: ModelConfig, tmp_path: Path
) -> None:
    module, loader, _ = prepared(NextToken(), text, model_config)
    module.eval()
    batch = next(batch for batch in loader if (batch.values == PAD).any())
    loss, count = module.training_loss(batch)
    nats = [
        module.model.nll(row[row != PAD][None], before[None])[0]
        for row, before in zip(batch.values, batch.previous, strict=True)
    ]
    assert count == sum(map(len, nats))
    torch.testing.assert_close(loss, torch.cat(nats).mean())
    rows = table(module, tmp_path)
    assert len(rows) > 1
    assert {len(row) for row in rows} == {1}
    assert len({row["text"] for row in rows}) > 1


def words_of(module: LanguageTrainingModule, ids: Tensor) -> str:
    return " ".join(module.vocabulary.tokenizer.symbols[token] for token in ids.tolist())


@torch.no_grad()
def test_tables_show_what_was_read_predicted_and_right(
    text: TextFiles, model_config: ModelConfig, tmp_path: Path
) -> None:
    module, _, _ = prepared(MaskedTokens(), text, model_config)
    rows, shown = table(module.eval(), tmp_path), module.shown
    assert shown is not None
    for number, row in enumerate(rows):
        batch = shown.batch([number], None)
        features = module.model.encoder(batch.tokens, segments(batch.tokens))[0, batch.where]
        best = module.model.logits(features).argmax(-1)
        wanted = (batch.tokens[0], best, batch.expected)
        assert [*row.values()] == [words_of(module, ids) for ids in wanted]


def test_vocabularies_are_compared_by_their_tokens(
    text: TextFiles, labelled: TabSeparated, model_config: ModelConfig
) -> None:
    module, _, _ = prepared(MaskedTokens(), text, model_config)
    own = module.metadata["vocabulary"]
    assert module.same_vocabulary({**own, "labels": ["x"]})
    other, _, _ = prepared(Classification(base="encoder"), labelled, model_config)
    assert not module.same_vocabulary(other.metadata["vocabulary"])
    (rows,) = module.row_maps(other.metadata["vocabulary"])
    before = other.vocabulary.tokenizer.symbols
    for symbol, row in zip(module.vocabulary.tokenizer.symbols, rows.rows, strict=True):
        assert row == (before.index(symbol) if symbol in before else -1)
    ends = ("embedding.table.weight", "logits.weight", "logits.bias")
    assert set(rows.weights) == {name for name in module.state_dict() if name.endswith(ends)}
    table, words = module.word_rows()
    assert table.shape[0] == len(module.vocabulary)
    assert words == module.vocabulary.tokenizer.words


@pytest.mark.parametrize("bias", [True, False])
def test_a_decoder_has_the_output_bias_unless_it_is_switched_off(
    model_config: ModelConfig, bias: bool
) -> None:
    config = model_config if bias else ModelConfig(model_config.transformer, output_bias=False)
    names = [name for name, _ in config.build_decoder(9, 8).named_parameters()]
    assert any(name.startswith("head") and name.endswith("bias") for name in names) == bias
