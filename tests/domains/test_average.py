"""Averages of trained models: scores by their definition, samples, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from random_head import with_random_head
from tiny_image import tiny_image
from tiny_music import Chorales, Performances, tiny_model

from triptych.core.heads import MixtureOfLogistics
from triptych.domains.base import TrainedModel
from triptych.domains.image.inference import ImageModel
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.model import MelodyEncoder
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import REST, ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.errors import UserError


def chorales(**sizes: object) -> MusicModel:
    sizes = {"overlap": 64, **sizes}
    return tiny_model(Chorales(steps=(16, 48), pitches=(38, 80)), length=128, **sizes)


def image(seed: int, shape: tuple[int, int, int] = (3, 4, 1), **sizes: object) -> ImageModel:
    model = tiny_image(shape, 4, n_classes=2, **sizes)
    torch.manual_seed(seed)
    for parameter in model.full_model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def images_of(pixels: torch.Tensor) -> np.ndarray:
    return pixels.numpy().astype(np.uint8)


@pytest.mark.parametrize("tokenizer", [ChoraleTokenizer(), EventTokenizer(), RemiTokenizer()])
def test_a_transposition_maps_pitches_and_nothing_else(tokenizer: MusicTokenizer) -> None:
    pitches = tokenizer.id_pitches
    for semitones in (-2, 1):
        moved = tokenizer.transposition(semitones)
        for id, (pitch, other) in enumerate(zip(pitches, moved, strict=True)):
            if pitch < 0:
                assert other == id
            elif other < 0:
                assert not tokenizer.pitch_range[0] <= pitch + semitones <= tokenizer.pitch_range[1]
            else:
                assert pitches[other] == pitch + semitones


def test_a_score_over_transpositions_is_the_mean_of_the_definition() -> None:
    model = chorales(overlap=0)
    averaged = model.averaged(transpositions=1)
    found = averaged.evaluate("validation").metrics["nats_per_token"]
    source, tokenizer = model.data_settings.source, model.tokenizer
    total, count = 0.0, 0
    for piece in source.load("validation", tokenizer):
        ids = tokenizer.tokens(piece.content)
        for start in range(0, len(ids), 128):
            window = ids[start : start + 128]
            shares = []
            for shift in (0, -1, 1):
                moved = [id if id == REST else id + shift for id in (*ids[:start], *window)]
                kept = [v for v in range(47) if v == REST or 0 <= v + shift <= 45]
                columns = [v if v == REST else v + shift for v in kept]
                before = torch.tensor([moved[start - 1] if start else -1])
                values = torch.tensor([moved[start:]])
                legal = [v == REST or 0 <= v <= 45 for v in values[0].tolist()]
                with torch.no_grad():
                    logits = model.full_model(values.clamp(0, REST), before)[0]
                p = torch.zeros(len(window), 47)
                p[:, kept] = logits[:, columns].softmax(-1)
                reads = [all(legal[:t]) and (start == 0 or before >= 0) for t in range(len(window))]
                shares.append((p[torch.arange(len(window)), torch.tensor(window)], reads))
            for t in range(len(window)):
                every = [float(p[t]) for p, reads in shares if reads[t]]
                total -= math.log(sum(every) / len(every))
                count += 1
    assert found == pytest.approx(total / count, abs=1e-5)
    assert found != pytest.approx(model.evaluate("validation").metrics["nats_per_token"], abs=1e-4)


def test_music_is_sampled_and_completed_from_an_average() -> None:
    averaged = chorales().averaged(chorales(n_layers=2), transpositions=2)
    assert len(averaged.full_model.members) == 10
    pieces = averaged.sample(2, seconds=4.0, seed=3)
    again = averaged.with_dtype("bf16").sample(1, seconds=1.0)
    assert [len(piece.score.parts) for piece in (*pieces, *again)] == [4, 4, 4]
    scores = averaged.evaluate("validation", sequence_length=192, overlap=0)
    assert scores.metrics["nats_per_token_beyond"] < 2 * math.log(47)
    completed = averaged.complete(pieces[0].score, "soprano", particles=2)
    soprano, given = (
        [*piece.score.notes[piece.score.notes.part == 0].rows("pitch", "onset")]
        for piece in (completed[0], pieces[0])
    )
    assert soprano == given
    with pytest.raises(UserError, match="no attention weights"):
        averaged.attention(primer=pieces[0])


def test_images_of_an_average() -> None:
    models = image(1), image(2, n_layers=1, width=8)
    averaged = models[0].averaged(models[1])
    pixels, labels = torch.randint(4, (5, 3, 4, 1)), torch.tensor([0, 1, 1, 0, 1])
    sequence = models[0].full_model.to_sequence(pixels)  # [B, L]
    with torch.no_grad():
        each = []
        for model in models:
            core = model.full_model
            logits = core.core(sequence, condition=core.condition(labels))
            each.append(logits.softmax(-1))
        expected = -(sum(each) / 2).gather(2, sequence.unsqueeze(2)).log().squeeze(2)
        found = averaged.full_model.nll(pixels, labels)
    torch.testing.assert_close(found, expected)
    assert averaged.sample(2).shape == (2, 3, 4, 1)
    with pytest.raises(UserError, match="no attention weights"):
        averaged.attention(images_of(pixels)[0], [(1, 1)])
    filled = np.zeros((3, 4), bool)
    filled[:1] = True
    images = images_of(pixels)
    completed = averaged.complete(images, filled, labels=labels.tolist(), passes=2)
    assert np.array_equal(completed[:, 0, 1:], images[:, 1:])


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (chorales, lambda: tiny_model(Performances(), length=128, overlap=64), "tokenizer"),
        (chorales, lambda: tiny_model(Chorales(steps=(16,)), length=64), "sequence_length"),
        (chorales, lambda: chorales(melody=MelodyEncoder(1)), "model.melody"),
        (chorales, lambda: image(1), "domain"),
        (lambda: image(1), lambda: image(1, (4, 3, 1)), "order of generation"),
        (lambda: image(1), lambda: tiny_image((3, 4, 1), 4), "class"),
    ],
)
def test_models_of_different_values_are_refused_by_name(first, second, says: str) -> None:
    mine, other = first(), second()
    mine.name, other.name = "mine.ckpt", "other.ckpt"
    with pytest.raises(UserError, match=rf"mine\.ckpt and other\.ckpt .*their {says} differs"):
        mine.averaged(other)


def test_models_without_a_categorical_head_are_refused() -> None:
    model: TrainedModel = tiny_image((3, 4, 1), 4, head=MixtureOfLogistics(2))
    with pytest.raises(UserError, match="categorical"):
        model.averaged(model)
    melodic = chorales(melody=MelodyEncoder(1))
    with_random_head(melodic.full_model)
    melodic.averaged(melodic)
    with pytest.raises(UserError, match="melody"):
        melodic.averaged(transpositions=1)
