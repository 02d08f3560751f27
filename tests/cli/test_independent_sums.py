"""What `evaluate` says of the shipped models, summed once more by a reader who trusts nothing.

The data are read here by hand, the model is asked one value at a time through its state, and the
logarithms are taken in double precision: no loader, no batch, no padding, no head of Triptych.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import triptych
from triptych.core.models.base import NO_CONDITION, Condition


def nats_by_steps(
    model: torch.nn.Module, values: list[int], condition: Condition = NO_CONDITION
) -> float:
    """Minus the sum of log p(value), each predicted after those before it were read singly."""
    total = 0.0
    with torch.inference_mode():
        state = model.init_state(1, len(values), condition=condition)
        logits: Tensor = model.prefill(torch.zeros(1, 0, dtype=torch.int64), state)
        for position, value in enumerate(values):
            if position:
                last = torch.tensor([[values[position - 1]]])
                logits = model.step(last, torch.tensor([position]), state)[:, 0]
            scores = logits[0].double()
            total += float(scores.exp().sum().log() - scores[value])
    return total


@pytest.fixture
def evaluate(cli, tmp_path: Path) -> Callable[..., dict[str, float]]:
    """The metrics of `evaluate` for a shipped model and the data of a new folder `data`."""

    def call(domain: str, name: str, *options: object) -> dict[str, float]:
        score = tmp_path / "score.json"
        command = ["evaluate", domain, "--checkpoint", f"pretrained:{name}", "--json", score]
        answer = cli(*command, "--data", tmp_path / "data", *options)
        assert answer.code == 0, answer.err
        return json.loads(score.read_text())["metrics"]

    (tmp_path / "data").mkdir()
    return call


Evaluate = Callable[..., dict[str, float]]


def test_chorales_in_nats_per_token(evaluate: Evaluate, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    pieces = []
    for steps in (19, 7, 12):
        chords = np.array([70, 65, 58, 48]) + random.integers(-4, 5, (steps, 4)).cumsum(0) // 4
        chords[random.random((steps, 4)) < 0.1] = -1  # a rest
        pieces.append(chords.tolist())
    with gzip.open(tmp_path / "data/Jsb16thSeparated.json.gz", "wt") as file:
        json.dump({"train": pieces[:1], "valid": pieces[:1], "test": pieces}, file)
    options = ["--sequence_length", 128, "--overlap", 0, "--batch_size", 2]
    told = evaluate("music", "jsb-chorales", *options)["nats_per_token"]

    model = triptych.load("pretrained:jsb-chorales", device="cpu").full_model
    flat = [[46 if p < 0 else p - 36 for chord in piece for p in chord] for piece in pieces]
    nats = sum(nats_by_steps(model, values) for values in flat)
    assert told == pytest.approx(nats / (4 * (19 + 7 + 12)), rel=1e-5)


def test_digits_in_bits_per_dim(evaluate: Evaluate, tmp_path: Path) -> None:
    image = np.clip(np.random.default_rng(6).normal(0, 90, (28, 28)), 0, 255).astype(np.uint8)
    images = struct.pack(">HBBIII", 0, 8, 3, 1, 28, 28) + image.tobytes()
    (tmp_path / "data/t10k-images-idx3-ubyte").write_bytes(images)
    labels = struct.pack(">HBBIB", 0, 8, 1, 1, 3)
    (tmp_path / "data/t10k-labels-idx1-ubyte").write_bytes(labels)
    told = evaluate("image", "mnist")["bits_per_dim"]

    model = triptych.load("pretrained:mnist", device="cpu").full_model
    # Row by row over the whole image, the first pixel included; the class is 3.
    nats = nats_by_steps(
        model.core,
        image.reshape(-1).tolist(),
        Condition(model.conditioner.classes.weight[[3]].unsqueeze(1)),
    )
    assert told == pytest.approx(nats / np.log(2) / 784, rel=1e-5)


def test_sentences_in_nats_per_token(evaluate: Evaluate, tmp_path: Path) -> None:
    pairs = [("A dog runs.", "Ein Hund rennt."), ("Two men", "Zwei Männer sitzen im Park.")]
    for column, language in enumerate(("en", "de")):
        text = "".join(pair[column] + "\n" for pair in pairs).encode()
        for name in ("train", "val", "test_2016_flickr"):
            (tmp_path / f"data/{name}.{language}.gz").write_bytes(gzip.compress(text))
    told = evaluate("translation", "multi30k-en-de")["nats_per_token"]

    trained = triptych.load("pretrained:multi30k-en-de", device="cpu")
    model = trained.full_model
    start, end = 1, 2  # ids that no piece of text has
    nats, tokens = 0.0, 0
    for english, german in pairs:
        source = [*trained.vocabulary.source.encode(english), end]
        target = [*trained.vocabulary.target.encode(german), end]
        with torch.inference_mode():
            condition = model.encode(torch.tensor([source]))
            state = model.init_state(1, len(target), condition=condition)
            for position, (last, value) in enumerate(zip([start, *target], target, strict=False)):
                logits = model.step(torch.tensor([[last]]), torch.tensor([position]), state)
                scores = logits[0, 0].double()
                nats += float(scores.exp().sum().log() - scores[value])
                tokens += 1
    assert told == pytest.approx(nats / tokens, rel=1e-5)
