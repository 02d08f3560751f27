"""Voices of a step in other orders: what is read and scored."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from decoders import assert_begins_as, assert_steps_predict
from random_head import with_random_head
from tiny_music import Chorales, tiny_model
from torch import Tensor

from triptych.core.attention.pitch_time import PitchTime
from triptych.core.layers import GELU
from triptych.core.positions import NoPositions
from triptych.core.transformer import TransformerConfig
from triptych.domains.music.config import Augmentation, Config, DataConfig
from triptych.domains.music.data import TrainingPieces, Window, make_batch, training_batches
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.model import MelodyEncoder, ModelConfig, MusicSettings
from triptych.domains.music.notes import SILENT
from triptych.domains.music.task import MusicTrainingModule, expected_parallels
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.voice_leading import VoiceLeading
from triptych.domains.music.voice_orders import VoiceOrders, in_order, voice_orders
from triptych.errors import UserError

LENGTH, N = 32, 4
ORDERS = list(permutations(range(N)))
SIZES = TransformerConfig(
    2, 16, 2, feed_forward=GELU(32), attention=PitchTime(9), dropout=0.0, positions=NoPositions()
)
SETTINGS = ModelConfig(SIZES, voice_orders=True)
TOKENIZER = ChoraleTokenizer()


def told(model: torch.nn.Module) -> None:
    """Give the orders different vectors."""
    for module in model.modules():
        if isinstance(module, VoiceOrders):
            torch.nn.init.normal_(module.places.weight)


def trained() -> MusicModel:
    made = tiny_model(Chorales((40, 23)), length=64, attention=PitchTime(9), voice_orders=True)
    told(made.full_model)
    torch.nn.init.normal_(made.full_model.head.logits.weight, std=0.5)
    made.full_model.double()
    return made


def test_orders_are_numbered_from_the_highest_voice() -> None:
    assert voice_orders(N) == ORDERS
    ids = np.arange(12)
    moved = in_order(ids, (2, 0, 3, 1))
    assert moved.tolist() == [2, 0, 3, 1, 6, 4, 7, 5, 10, 8, 11, 9]
    assert in_order(moved, np.argsort((2, 0, 3, 1))).tolist() == ids.tolist()


@pytest.mark.parametrize(("n_prefix", "together"), [(0, 1), (7, 1), (7, 3)])
@torch.no_grad()
def test_a_model_reads_its_order_in_one_pass_and_in_steps(n_prefix: int, together: int) -> None:
    torch.manual_seed(0)
    settings = replace(SETTINGS, voice_leading=True)
    model = with_random_head(settings.build(length=LENGTH)).double().eval()
    told(model)
    torch.nn.init.normal_(model.term.numbers)
    values = torch.randint(20, 40, (5, LENGTH))
    condition = model.condition(torch.tensor([0, 5, 23, 5, 11]))
    assert_steps_predict(model, values, n_prefix, together, wrong=30, condition=condition)
    plain, found = model(values), model(values, condition=condition)
    assert torch.equal(found[0], plain[0]), "the first order is that of no condition"
    assert not torch.isclose(found[1:], plain[1:]).all(-1).any()


def test_a_new_model_is_the_one_without() -> None:
    torch.manual_seed(1)
    plain = with_random_head(ModelConfig(SIZES).build(length=LENGTH)).eval()
    values = torch.randint(46, (3, LENGTH))
    new = SETTINGS.build(length=LENGTH).eval()
    assert_begins_as(new, plain, values, ["conditioner.places.weight"])


def test_each_crop_is_written_in_one_order_as_often_as_asked() -> None:
    random = np.random.default_rng(0)
    pieces = [TOKENIZER.encode(random.integers(40, 78, (192, N)))]
    settings = MusicSettings(SETTINGS, sequence_length=64, overlap=0)
    counts = np.zeros(len(ORDERS), dtype=int)
    augmentation = Augmentation(transpose=0, reordered_share=0.6)
    config = DataConfig(
        Chorales(), sequence_length=64, overlap=0, batch_size=13, augmentation=augmentation
    )
    loader = training_batches(TrainingPieces.of_ids(pieces, TOKENIZER), config, settings, seed=0)
    steps = pieces[0].reshape(-1, N)
    for _ in range(120):
        for batch in loader:
            columns = zip(batch.values.numpy(), batch.previous.tolist(), batch.order, strict=True)
            for values, previous, number in columns:
                order = list(ORDERS[number])
                rows = values.reshape(-1, N)
                (start,) = [
                    at for at in range(0, 192, 16) if np.array_equal(steps[at, order], rows[0])
                ]
                assert np.array_equal(steps[start : start + 16, order], rows)
                assert previous == (steps[start - 1, order[-1]] if start else -1)
                counts[number] += 1
    total, share = counts.sum(), 0.4 + 0.6 / 24
    assert counts[0] == pytest.approx(share * total, abs=4 * math.sqrt(total * share * (1 - share)))
    assert counts[1:].min() > 0.5 * 0.6 * total / 24


@torch.no_grad()
def test_the_mean_over_orders_is_that_of_each_step() -> None:
    """Beside a loop over windows, steps and orders; the second window follows a token."""
    model = trained()
    orders = [number * 24 // 5 for number in range(5)]
    total = n_tokens = 0.0
    for piece in model.data_settings.source.load("test", TOKENIZER):
        ids = TOKENIZER.encode(piece.content).reshape(-1, N)
        for start in range(0, len(ids), 16):
            p = []
            for number in orders:
                order = list(ORDERS[number])
                values = torch.from_numpy(ids[start : start + 16, order].reshape(1, -1))
                before = torch.tensor([ids[start - 1, order[-1]] if start else -1])
                condition = model.model.condition(torch.tensor([number]))
                nll = model.model.nll(values, before, condition)
                p.append((-nll.view(-1, N).sum(1)).exp())
            total -= float(torch.stack(p).mean(0).log().sum())
            n_tokens += values.numel()
    plain, mean = model.evaluate("test").metrics, model.evaluate("test", orders=5).metrics
    assert mean["nats_per_token"] == pytest.approx(total / n_tokens, rel=1e-9)
    assert plain["nats_per_token"] != pytest.approx(mean["nats_per_token"], rel=1e-4)
    notes = [m["nats_per_note"] / m["nats_per_token"] for m in (plain, mean)]
    assert notes[0] == pytest.approx(notes[1]), "of as many notes"


@torch.no_grad()
def test_a_teacher_at_random_transpositions_reads_the_same_order() -> None:
    model = trained()
    teacher = model.averaged(transpositions=1).model
    teacher.one_at_random = True
    grid = np.random.default_rng(0).integers(45, 70, (16, N))
    ids, order = as_sung(grid, ORDERS[17]), torch.tensor([17])
    found = teacher.features(ids, condition=teacher.condition(order))[0]
    expected = []
    for shift in (-1, 0, 1):
        p = model.model(ids + shift, condition=model.model.condition(order))[0].softmax(-1)
        p = p[:, :46].roll(-shift, dims=1)[:, 2:44]  # as if it had not been transposed
        expected.append((p / p.sum(-1, keepdim=True)).log())
    found = found[:, 2:44].log_softmax(-1)
    assert sum(torch.allclose(found, each) for each in expected) == 1


def test_orders_that_a_model_does_not_know_are_refused() -> None:
    with pytest.raises(UserError, match="at most 24"):
        trained().evaluate("test", orders=25)
    with pytest.raises(UserError, match="at most 1"):
        tiny_model(Chorales((16,)), length=64).evaluate("test", orders=2)
    with pytest.raises(ValueError, match="voice_orders"):
        ModelConfig(voice_orders=True, tokenizer=EventTokenizer()).build(length=64)
    with pytest.raises(ValueError, match="exclude"):
        ModelConfig(SIZES, voice_orders=True, melody=MelodyEncoder(1)).build(length=64)
    data = DataConfig(Chorales(), augmentation=Augmentation(reordered_share=0.5))
    with pytest.raises(ValueError, match=r"model\.voice_orders"):
        Config(data=data)


def as_sung(grid: np.ndarray, order: tuple[int, ...]) -> Tensor:
    """Ids of a grid [T, 4] in an order: [1, 4 T]."""
    return torch.from_numpy(in_order(TOKENIZER.encode(grid), order)).unsqueeze(0)


@torch.no_grad()
def test_the_intervals_of_a_step_have_the_same_numbers_in_every_order() -> None:
    """Beside a loop over the voices that sing earlier in the step."""
    term = VoiceLeading(TOKENIZER.id_pitches, N)
    torch.nn.init.normal_(term.numbers)
    by_interval = term.numbers.view(2, 12, 12)
    random = np.random.default_rng(1)
    for _ in range(20):
        grid = random.integers(40, 78, (2, N))
        for number in (0, 7, 14, 23):
            order = ORDERS[number]
            ids = as_sung(grid, order)
            past = torch.nn.functional.pad(ids, (term.reach, 0), value=-1)
            for place in range(N):
                voice, at = order[place], N + place
                expected = torch.zeros(TOKENIZER.vocabulary_size)
                for id_, pitch in enumerate(TOKENIZER.id_pitches.tolist()):
                    for other in order[:place] if pitch != SILENT else ():
                        before = int(grid[0, other] - grid[0, voice])
                        now = int(grid[1, other] - pitch)
                        sign = 1 if other < voice else -1
                        moved = int(grid[0, other] != grid[1, other])
                        expected[id_] += by_interval[moved, sign * before % 12, sign * now % 12]
                window = past[:, at : at + term.reach].unsqueeze(1)
                found = term(window, torch.tensor([at]), torch.tensor([order]))[0, 0]
                torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_the_penalty_counts_parallels_in_the_order_of_a_row() -> None:
    settings = replace(SETTINGS, voice_leading=True, parallel_penalty=1.0)
    model = with_random_head(settings.build(length=LENGTH)).double().eval()
    grid = np.random.default_rng(3).integers(40, 60, (8, N))
    scored = torch.ones(1, LENGTH, dtype=torch.bool)
    for number in (0, 9, 23):
        ids = as_sung(grid, ORDERS[number])
        condition = model.condition(torch.tensor([number]))
        features = model.features(ids, condition=condition)
        p = model.head(features).softmax(-1)[0]
        voices = torch.tensor([ORDERS[number]])
        counts = model.term.parallels(model.past(ids), torch.arange(LENGTH), voices)[0]
        expected = float((p * counts).sum() / LENGTH)
        assert expected > 0
        found = expected_parallels(model, features, ids, scored, condition)
        assert float(found) == pytest.approx(expected)
        task = MusicTrainingModule(Config(data=DataConfig(Chorales()), model=settings)).double()
        window = Window(TOKENIZER.encode(grid), 0, order=number)
        predictions = task.predictions(model.train(), make_batch([window], task.settings))
        assert float(predictions.further) == pytest.approx(expected)
        model.eval()


@torch.no_grad()
def test_windows_of_other_orders_hold_the_same_notes() -> None:
    settings = MusicSettings(SETTINGS, sequence_length=64, overlap=0)
    tokens = TOKENIZER.encode(np.random.default_rng(0).integers(45, 50, (32, N)))
    plain = make_batch([Window(tokens, 64)], settings)
    moved = make_batch([Window(tokens, 64, order=19)], settings)
    order = list(ORDERS[19])
    for name in ("values", "scored", "onsets"):
        expected = getattr(plain, name).view(-1, N)[:, order].flatten()
        assert torch.equal(getattr(moved, name)[0], expected), name
    assert int(moved.order) == 19
    assert not plain.onsets.all()
