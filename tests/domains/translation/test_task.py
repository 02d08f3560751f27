"""Training: the smoothed loss, honest nats, real decoding, and what stands in a checkpoint."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.translation.config import Config, ModelConfig
from triptych.domains.translation.data import Batch, EncodedPairs
from triptych.domains.translation.domain import DOMAIN
from triptych.domains.translation.inference import TranslationModel, restore
from triptych.domains.translation.model import END, START
from triptych.domains.translation.render import draw
from triptych.domains.translation.sources import ParallelText
from triptych.domains.translation.task import TranslationTrainingModule, prepare
from triptych.errors import UserError
from triptych.text.batches import evaluation_batches
from triptych.text.tokenizer import PAD
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.objective import DistillationConfig, ObjectiveConfig
from triptych.training.run.checkpoint import header

# Scores ------------------------------------------------------------------------------------------


def test_a_uniform_model_scores_exactly_log_v(tiny_config: Config) -> None:
    task, _, validation = prepare(tiny_config)
    with torch.no_grad():
        task.model.target_embedding.table.weight.zero_()  # tied: all logits are zero
    totals = sum_scores(task, task.score, validation)
    metrics = task.metrics(totals)
    vocabulary = len(task.tokenizers.target)
    assert metrics["nats_per_token"] == pytest.approx(math.log(vocabulary), rel=1e-6)
    pairs = tiny_config.data.source.items("validation")
    ids = task.tokenizers.target.encode_batch([target for _, target in pairs])
    assert totals["tokens"] == sum(len(row) + 1 for row in ids)  # every end, no padding
    assert totals["pairs"] == len(pairs)


def test_nats_do_not_depend_on_batches_padding_smoothing_or_dropout(
    taught: TranslationTrainingModule,
) -> None:
    pairs = EncodedPairs.of(taught.config.data.source.items("validation"), taught.tokenizers)
    figures = [
        taught.metrics(sum_scores(taught, taught.score, evaluation_batches(pairs, budget)))[
            "nats_per_token"
        ]
        for budget in (1, 64, 100_000)
    ]
    assert figures == pytest.approx([figures[0]] * 3, rel=1e-5)
    # By hand, pair by pair: the model's own probability of each right token.
    total, count = 0.0, 0
    for index in range(len(pairs)):
        batch = pairs.batch([index])
        with torch.no_grad():
            log_p = taught.model(batch.source, None, batch.target_input).log_softmax(-1)
        right = log_p.gather(-1, batch.expected.unsqueeze(-1))
        total, count = total - float(right.sum()), count + right.numel()
    assert figures[0] == pytest.approx(total / count, rel=1e-5)
    taught.train()
    again = taught.metrics(sum_scores(taught, taught.score, evaluation_batches(pairs, 64)))[
        "nats_per_token"
    ]
    assert taught.training
    taught.eval()
    assert again == pytest.approx(figures[0], rel=1e-6)


def test_more_padding_changes_no_loss(taught: TranslationTrainingModule) -> None:
    pairs = EncodedPairs.of(
        [("one", "eins"), ("seven hundred", "siebenhundert")], taught.tokenizers
    )
    batch = pairs.batch([0, 1])
    wider = Batch(
        torch.nn.functional.pad(batch.source, (0, 5), value=PAD),
        torch.nn.functional.pad(batch.target, (0, 4), value=PAD),
    )
    with torch.no_grad():
        narrow_loss, narrow_count = taught.training_loss(batch)
        wide_loss, wide_count = taught.training_loss(wider)
    assert int(narrow_count) == int(wide_count) == int((batch.expected != PAD).sum())
    torch.testing.assert_close(narrow_loss, wide_loss)


# Validation decodes ------------------------------------------------------------------------------


def test_validation_scores_what_the_model_says_by_itself(taught: TranslationTrainingModule) -> None:
    metrics = taught.generation_metrics()
    assert metrics.keys() == {"bleu", "chrf", "exact_match"}
    assert len(taught.hypotheses) == taught.config.data.validation_lines == 10
    assert taught.generated_pairs == taught.config.data.source.items("validation")[:10]
    # Greedy by hand on one line.
    source, _ = taught.generated_pairs[3]
    ids = torch.tensor([[*taught.tokenizers.source.encode(source), END]])
    said = [START]
    with torch.no_grad():
        while said[-1] != END and len(said) < ids.shape[1] + 50:
            logits = taught.model(ids, None, torch.tensor([said]))[0, -1]
            logits[[PAD, START]] = -torch.inf
            said.append(int(logits.argmax()))
    assert taught.hypotheses[3] == taught.tokenizers.target.decode(said)


def test_the_table_shows_source_reference_and_translation(
    taught: TranslationTrainingModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triptych.domains.translation.task.SHOWN", 5)
    taught.generation_metrics()
    taught.log_samples(tmp_path)
    with (tmp_path / "translations.csv").open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    assert columns == ["source", "reference", "translation", "exact match", "chrF"]
    assert len(rows) == 5
    for (source, reference), hypothesis, row in zip(
        taught.generated_pairs, taught.hypotheses, rows, strict=False
    ):
        same = reference == hypothesis
        assert row[:4] == [source, reference, hypothesis, "yes" if same else "no"]
        assert (row[4] == "100") >= same
    (first,) = TranslationModel.of_run(taught.config, taught.model, taught.tokenizers).attention(
        [taught.generated_pairs[0][0]], beam=1
    )
    assert (tmp_path / "attention.png").read_bytes() == draw(first)


def test_decoding_can_be_switched_off(tiny_config: Config, tmp_path: Path) -> None:
    config = replace(tiny_config, data=replace(tiny_config.data, validation_lines=0))
    task, _, _ = prepare(config)
    assert task.generation_metrics() == {}
    task.log_samples(tmp_path)
    assert list(tmp_path.iterdir()) == []


# From settings to task, from checkpoint to task --------------------------------------------------


def test_a_checkpoint_brings_everything(taught: TranslationTrainingModule) -> None:
    # What training writes: JSON types beside the weights.
    metadata = json.loads(json.dumps(taught.metadata))
    again = restore({"triptych": metadata, "state_dict": taught.state_dict()})
    assert again.settings == taught.settings
    assert again.data_settings == taught.config.data
    source = torch.tensor([[*taught.tokenizers.source.encode("seven"), END]])
    start = torch.tensor([[START]])
    with torch.no_grad():
        assert torch.equal(again.model(source, None, start), taught.model(source, None, start))
    assert again.vocabulary.target.to_json() == taught.tokenizers.target.to_json()


def test_the_vocabulary_is_learnt_from_the_training_side_only(tmp_path: Path) -> None:
    for split, word in (("train", "aaaa bbbb"), ("val", "zqzq zqzq")):
        for language in ("en", "de"):
            (tmp_path / f"{split}.{language}").write_text(f"{word}\n" * 5)
    corpus = ParallelText(
        directory=str(tmp_path),
        files={"train": ["train.{language}"], "validation": ["val.{language}"]},
    )
    config = Config(
        data=replace(Config().data, source=corpus, vocabulary_size=300),
        model=ModelConfig(
            TransformerConfig(n_layers=1, d_model=8, n_heads=1, feed_forward=GELU(8))
        ),
    )
    task, _, _ = prepare(config)
    assert len(task.tokenizers.source.encode("aaaa")) == 1
    assert len(task.tokenizers.source.encode("zqzq")) == 4  # bytes: never seen


def test_a_run_with_a_teacher_has_the_vocabulary_of_the_teacher(
    taught: TranslationTrainingModule, tiny_config: Config, tmp_path: Path
) -> None:
    """A smaller student, whose own settings would give fewer tokens."""
    teacher = tmp_path / "teacher.ckpt"
    facts = header(taught.metadata, seed=0, step=60, metrics={})
    torch.save({"triptych": facts, "state_dict": taught.state_dict()}, teacher)
    objective = ObjectiveConfig(distillation=DistillationConfig([str(teacher)]))
    student = replace(
        tiny_config,
        data=replace(tiny_config.data, vocabulary_size=300),
        model=ModelConfig(TransformerConfig(n_layers=1, d_model=16, n_heads=2)),
        optim=replace(tiny_config.optim, objective=objective),
    )
    task, loader, _ = DOMAIN.prepare(student)
    assert task.tokenizers.to_plain() == taught.tokenizers.to_plain()
    assert len(task.tokenizers.target) > 300
    assert task.training_loss(next(iter(loader)))[0].isfinite()


def test_training_leaves_out_and_counts_and_validation_keeps_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "wort " * 60
    sides = {"en": ["a b", "", "c d", long, "e f e f"], "de": ["A B", "B", "  ", long, "E F"]}
    for language, lines in sides.items():
        for split in ("train", "val"):
            (tmp_path / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    corpus = ParallelText(
        directory=str(tmp_path),
        files={"train": ["train.{language}"], "validation": ["val.{language}"]},
    )
    data = replace(Config().data, source=corpus, vocabulary_size=262, max_length=20, max_tokens=40)
    model = ModelConfig(TransformerConfig(n_layers=1, d_model=8, n_heads=1, feed_forward=GELU(8)))
    _, loader, validation = prepare(Config(data=data, model=model))
    said = capsys.readouterr().err
    assert "2 training pairs; left out: 2 with an empty side, 1 longer than 20 tokens" in said
    batches = list(loader)
    assert sum(len(batch.source) for batch in batches) == 2
    assert f"{len(batches)} batches in the first epoch" in said
    assert sum(len(batch.source) for batch in validation) == 5
    with pytest.raises(UserError, match=r"no training example is left, all 3 longer .*max_length"):
        prepare(Config(data=replace(data, max_length=2), model=model))


@pytest.mark.parametrize(
    ("train", "message"),
    [("", "the train split has no sentence pairs"), ("\n\n", "2 with an empty side")],
)
def test_nothing_to_train_on_is_said(tmp_path: Path, train: str, message: str) -> None:
    for language in ("en", "de"):
        (tmp_path / f"train.{language}").write_text(train)
        (tmp_path / f"val.{language}").write_text("a\n")
    corpus = ParallelText(
        directory=str(tmp_path),
        files={"train": ["train.{language}"], "validation": ["val.{language}"]},
    )
    with pytest.raises(UserError, match=message):
        prepare(Config(data=replace(Config().data, source=corpus)))


def test_one_matrix_for_two_vocabularies_is_refused() -> None:
    data = replace(Config().data, shared_vocabulary=False)
    with pytest.raises(ValueError, match=r"model\.share_embeddings is all"):
        Config(data=data)
    assert (
        Config(data=data, model=ModelConfig(share_embeddings="target")).model.share_embeddings
        == "target"
    )


def test_separate_vocabularies_train_and_come_back(
    tiny_config: Config, teach: Callable[[Config, int], TranslationTrainingModule]
) -> None:
    config = replace(
        tiny_config,
        data=replace(tiny_config.data, shared_vocabulary=False),
        model=replace(tiny_config.model, share_embeddings="target"),
    )
    task = teach(config, 2)
    again = restore({"triptych": task.metadata, "state_dict": task.state_dict()})
    assert not again.vocabulary.shared
    assert again.vocabulary.source.encode("nine") == task.tokenizers.source.encode("nine")


def test_the_order_of_the_data_is_a_function_of_the_seed(tiny_config: Config) -> None:
    def first(seed: int) -> torch.Tensor:
        config = replace(tiny_config, run=replace(tiny_config.run, seed=seed))
        return next(iter(prepare(config)[1])).target

    assert torch.equal(first(1), first(1))
    assert first(1).shape != first(2).shape or not torch.equal(first(1), first(2))
