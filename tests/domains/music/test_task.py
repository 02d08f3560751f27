import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from random_head import with_random_head

from triptych.core.attention.full import Full
from triptych.core.attention.relative import Relative
from triptych.core.layers import GELU
from triptych.core.positions import (
    MetricalEmbedding,
    NoEmbedding,
    NoPositions,
    Sinusoidal,
    SinusoidalEmbedding,
)
from triptych.core.transformer import TransformerConfig
from triptych.decoding import generate as decoding
from triptych.decoding.sampling import Draft, SampleRequest
from triptych.domains.music import generation
from triptych.domains.music.config import Augmentation, Config, DataConfig, ModelConfig
from triptych.domains.music.data import PADDING, evaluation_batches
from triptych.domains.music.generation import sample_pieces
from triptych.domains.music.inference import restore
from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.task import MusicTrainingModule, expected_parallels, prepare
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.errors import UserError
from triptych.training.engine.evaluate import sum_scores
from triptych.training.engine.optim import Constant
from triptych.training.run.settings import OptimConfig, RunConfig


def scale(steps, seed):
    """Four voices that walk up and down a scale: easy to learn."""
    random = np.random.default_rng(seed)
    line = np.abs(np.arange(steps) // 2 + random.integers(0, 14)) % 14
    line = np.where(line > 7, 14 - line, line)
    return np.stack([60 + 2 * line, 55 + line, 50 + 0 * line, 40 + line], axis=1)


@dataclass(frozen=True)
class Scales(PieceSource):
    content = ChoraleTokenizer.content

    def stream(self, split, tokenizer):
        seeds = {"train": range(8), "validation": range(20, 23), "test": range(30, 33)}[split]
        return [Piece(f"{split}-{seed}", scale(40 + 9 * (seed % 5), seed)) for seed in seeds]


def config(attention=None):
    sizes = TransformerConfig(
        n_layers=1, d_model=32, n_heads=2, dropout=0.1, feed_forward=GELU(64),
        positions=NoPositions(), attention=attention or Relative(),
    )  # fmt: skip
    return Config(
        data=DataConfig(
            source=Scales(),
            sequence_length=128,
            overlap=64,
            batch_size=4,
            augmentation=Augmentation(transpose=2),
            sample_seconds=2,
        ),
        model=ModelConfig(sizes),
        optim=OptimConfig(learning_rate=1e-2, schedule=Constant(warmup_steps=5)),
        run=RunConfig(name="t", seed=1, wandb="off"),
    )


@pytest.fixture
def task():
    torch.manual_seed(0)
    return with_random_head(MusicTrainingModule(config()))


def scored(pieces, data=None, batch_size=2):
    texts = [ChoraleTokenizer().tokens(piece.content) for piece in pieces]
    settings = Config(data or config().data).model_settings()
    return evaluation_batches(texts, settings, batch_size=batch_size)


def test_the_penalty_of_parallels_is_a_part_of_the_loss_in_training_alone():
    plain, losses = config(), []
    for penalty in (0.0, 3.0):
        torch.manual_seed(0)
        model = replace(plain.model, voice_leading=True, parallel_penalty=penalty)
        model = replace(model, transformer=replace(model.transformer, dropout=0.0))
        task = with_random_head(MusicTrainingModule(replace(plain, model=model)))
        batch = next(iter(scored(Scales().load("validation", ChoraleTokenizer()))))
        for training in (True, False):
            prediction = task.train(training).predictions(task.model, batch)
            losses.append(task.config.optim.objective.training_loss(
                lambda *_, of=prediction: of, task.model, batch, [])[0].item())  # fmt: skip
    expected = expected_parallels(
        task.model, prediction.features, prediction.targets, batch.scored
    ).item()
    assert expected > 0
    assert losses[2] == pytest.approx(losses[0] + 3 * expected, rel=1e-5)
    assert losses[1] == losses[3] == pytest.approx(losses[0])


def test_a_uniform_model_gives_exactly_log_v(task):
    for parameter in task.model.head.parameters():
        torch.nn.init.zeros_(parameter)
    pieces = Scales().load("validation", ChoraleTokenizer())
    totals = sum_scores(task, task.score, scored(pieces))
    metrics = task.metrics(totals)
    assert metrics["nats_per_token"] == pytest.approx(math.log(47), abs=1e-6)
    assert totals["tokens"] == sum(4 * len(piece.content) for piece in pieces)


def test_nats_per_note_share_all_nats_among_the_notes(task):
    kind = ChoraleTokenizer()
    pieces = Scales().load("validation", ChoraleTokenizer())
    totals = sum_scores(task, task.score, scored(pieces))
    metrics = task.metrics(totals)
    notes = sum(int(kind.onsets(kind.tokens(piece.content)).sum()) for piece in pieces)
    assert totals["notes"] == notes
    assert metrics["nats_per_note"] * notes == pytest.approx(totals["nats"])


@pytest.mark.parametrize("attention", [Full(), Relative(max_distance=16)])
def test_the_score_does_not_depend_on_the_batch_size(attention):
    torch.manual_seed(0)
    task = with_random_head(MusicTrainingModule(config(attention=attention))).double()
    pieces = Scales().load("validation", ChoraleTokenizer())
    scores = [
        task.metrics(sum_scores(task, task.score, scored(pieces, batch_size=size)))
        for size in (1, 2, 5, 64)
    ]
    for score in scores[1:]:
        assert score["nats_per_token"] == pytest.approx(scores[0]["nats_per_token"], abs=1e-12)


def test_the_score_is_that_of_each_token_by_hand(task):
    """Every token scored alone, after exactly the tokens that its window shows."""
    task = task.double().eval()
    piece = Scales().load("test", ChoraleTokenizer())[2]
    data = config().data
    tokens = torch.from_numpy(ChoraleTokenizer().tokens(piece.content))
    length, overlap = data.sequence_length, data.overlap
    total = 0.0
    with torch.no_grad():
        for place in range(len(tokens)):
            start = max(0, -(-(place - length + 1) // (length - overlap))) * (length - overlap)
            previous = tokens[start - 1 : start] if start else torch.tensor([-1])
            seen = tokens[start : place + 1].unsqueeze(0)
            total += task.model.nll(seen, previous=previous)[0, -1].item()
    metrics = task.metrics(sum_scores(task, task.score, scored([piece], data, batch_size=3)))
    assert len(tokens) > 2 * length - overlap  # at least three windows
    assert metrics["nats_per_token"] == pytest.approx(total / len(tokens), abs=1e-10)


def test_padding_changes_neither_loss_nor_gradient(task):
    task = task.double().eval()
    pieces = Scales().load("train", ChoraleTokenizer())
    batch = next(iter(scored(pieces[:3], batch_size=3)))
    loss, count = task.training_loss(batch)
    loss.backward()
    before = [p.grad.clone() for p in task.parameters() if p.grad is not None]
    task.zero_grad()
    wide = batch._replace(
        values=torch.nn.functional.pad(batch.values, (0, 9), value=PADDING),
        scored=torch.nn.functional.pad(batch.scored, (0, 9)),
        onsets=torch.nn.functional.pad(batch.onsets, (0, 9)),
    )
    wide_loss, wide_count = task.training_loss(wide)
    wide_loss.backward()
    after = [p.grad for p in task.parameters() if p.grad is not None]
    assert wide_count == count
    torch.testing.assert_close(wide_loss, loss)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)


def test_prepare_is_a_function_of_the_seed():
    one, two = (prepare(config())[0].state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_checkpoint_of_another_vocabulary_is_refused():
    task = MusicTrainingModule(replace(config(), data=DataConfig()))
    for change in ({"tokenizer": "abc"}, {"symbols": ["x"]}):
        metadata = {**task.metadata, "vocabulary": {**task.metadata["vocabulary"], **change}}
        with pytest.raises(UserError, match="was trained with the tokenizer"):
            restore({"triptych": metadata, "state_dict": task.state_dict()})


def test_sample_files_are_written_and_listed(task, tmp_path):
    task.log_samples(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "attention.png",
        *(f"piece-00.{e}" for e in ("mid", "png", "wav")),
    ]
    task.config = replace(task.config, data=replace(task.config.data, samples=0))
    (tmp_path / "none").mkdir()
    task.log_samples(tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []


@pytest.mark.parametrize(
    ("positions", "kind", "expected"),
    [
        (NoPositions(), EventTokenizer(), [NoEmbedding]),
        (Sinusoidal(), EventTokenizer(), [SinusoidalEmbedding]),
        (NoPositions(), ChoraleTokenizer(), [NoEmbedding, MetricalEmbedding]),
        (Sinusoidal(), ChoraleTokenizer(), [SinusoidalEmbedding, MetricalEmbedding]),
    ],
)
def test_voice_and_meter_are_added_to_the_position_encoding(positions, kind, expected):
    sizes = TransformerConfig(
        n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(16), positions=positions
    )
    found = ModelConfig(sizes, tokenizer=kind).build(length=64).positions
    assert [type(part) for part in getattr(found, "parts", [found])] == expected


@pytest.mark.parametrize(
    ("options", "cycles"),
    [
        ({}, [(1, 4), (4, 4), (4, 16)]),
        ({"meter_embedding": False}, [(1, 4)]),
        ({"voice_embedding": False}, [(4, 4), (4, 16)]),
        ({"voice_embedding": False, "meter_embedding": False}, []),
    ],
)
def test_voice_and_meter_embeddings_are_left_out_one_by_one(options, cycles):
    sizes = TransformerConfig(n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(16))
    config = ModelConfig(sizes, **options)
    modules = config.build(length=64).modules()
    embeddings = [part for part in modules if isinstance(part, MetricalEmbedding)]
    assert [cycle for part in embeddings for cycle in part.cycles] == cycles


@pytest.mark.parametrize(("count", "drafted"), [(1, True), (4, True), (5, False)])
def test_guessing_held_notes_changes_no_piece(count, drafted, monkeypatch):
    drafts = []
    original = decoding.generate

    def noted(model, request):
        drafts.append(request.draft)
        return original(model, request)

    monkeypatch.setattr(decoding, "generate", noted)
    task = with_random_head(MusicTrainingModule(config())).double().eval()
    request = SampleRequest(count, seed=3)
    sample = partial(sample_pieces, task.model, task.settings, request, length=12)
    pieces = sample()
    assert all(draft == (Draft(4) if drafted else None) for draft in drafts)
    monkeypatch.setattr(generation, "MAX_DRAFTED_ROWS", 0)
    assert np.array_equal(pieces, sample())
    assert drafts[-1] is None
