"""Scores with windows longer than in training, and of each position in the window."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tiny_music import Chorales, tiny_model
from torch import nn

from triptych.core.attention.full import Full
from triptych.core.attention.mask import SlidingWindow
from triptych.core.attention.multihead import AttentionConfig
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.domains.music.config import Config
from triptych.domains.music.inference import MusicModel
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.errors import UserError

STEPS = (100, 40, 71)
"""16ths of the pieces: 400, 160 and 284 tokens."""
PIECES = Chorales(STEPS)


@dataclass(frozen=True)
class OneLength(AttentionConfig):
    """A variant that knows no other length."""

    def mask_pattern(self, shape, causal):
        if shape != (64,):
            raise ValueError(f"this variant serves 64 positions, got {shape[0]}")
        return SlidingWindow(causal)


@dataclass(frozen=True)
class WithTable(AttentionConfig):
    """A variant with a number for each position."""

    def mask_pattern(self, shape, causal):
        pattern = SlidingWindow(causal)
        pattern.table = nn.Parameter(torch.randn(shape[0]))
        return pattern


def model_of(attention, **model):
    made = tiny_model(PIECES, length=64, batch_size=3, n_layers=2, attention=attention, **model)
    made.full_model.double()
    return made


def with_data(model, **changes):
    """The same model as if it had been trained with other windows."""
    data = replace(model.data_settings, **changes)
    return MusicModel.of_run(Config(data=data, model=model.settings.model), model.model)


VARIANTS = [Relative(max_distance=16), Full(), Relative(max_distance=8, window=20), PitchTime()]


@pytest.mark.parametrize("attention", VARIANTS, ids=lambda a: type(a).__name__)
def test_each_position_of_longer_windows_is_scored_as_by_hand(attention):
    model = model_of(attention)
    found = model.evaluate("test", sequence_length=128, overlap=0, bucket=16)
    nats, tokens = np.zeros(128), np.zeros(128, dtype=int)
    for piece in PIECES.load("test", ChoraleTokenizer()):
        ids = torch.from_numpy(ChoraleTokenizer().tokens(piece.content))
        for start in range(0, len(ids), 128):
            window = ids[start : start + 128].unsqueeze(0)
            previous = ids[start - 1].view(1) if start else None
            with torch.no_grad():
                by_hand = model.model.nll(window, previous=previous)[0].numpy()
            nats[: len(by_hand)] += by_hand
            tokens[: len(by_hand)] += 1
    curve = found.details["by_position"]
    assert (curve["trained_length"], curve["sequence_length"], curve["overlap"]) == (64, 128, 0)
    assert [(b["first"], b["last"]) for b in curve["buckets"]] == [
        (first, first + 15) for first in range(0, 128, 16)
    ]
    for bucket in curve["buckets"]:
        part = slice(bucket["first"], bucket["last"] + 1)
        assert bucket["tokens"] == tokens[part].sum()
        expected = nats[part].sum() / tokens[part].sum()
        assert bucket["nats_per_token"] == pytest.approx(expected, abs=1e-12)
    metrics = found.metrics
    within, beyond = nats[:64].sum() / tokens[:64].sum(), nats[64:].sum() / tokens[64:].sum()
    assert metrics["nats_per_token_within"] == pytest.approx(within, abs=1e-12)
    assert metrics["nats_per_token_beyond"] == pytest.approx(beyond, abs=1e-12)
    assert metrics["nats_per_token"] == pytest.approx(nats.sum() / tokens.sum(), abs=1e-12)
    assert found.details["tokens"] == tokens.sum() == 4 * sum(STEPS)


def test_the_models_own_windows_score_as_ever():
    model = model_of(Full())
    plain = model.evaluate("test")
    named = model.evaluate("test", sequence_length=64, overlap=0, bucket=64)
    assert plain.metrics == named.metrics
    assert set(plain.metrics) == {"nats_per_token", "nats_per_note"}
    (bucket,) = named.details["by_position"]["buckets"]
    assert (bucket["first"], bucket["last"], bucket["tokens"]) == (0, 63, 844)
    assert bucket["nats_per_token"] == pytest.approx(plain.metrics["nats_per_token"], abs=1e-12)


def test_the_context_grows_with_the_length_and_its_positions_are_scored_at_a_start_only():
    model = model_of(Full())
    model = with_data(model, sequence_length=128, overlap=64)
    found = model.evaluate("test", sequence_length=320, bucket=64).details
    assert (found["sequence_length"], found["overlap"]) == (320, 128), "bars of 64 tokens"
    assert found["by_position"]["buckets"][0]["tokens"] == 3 * 64
    shorter = model.evaluate("test", sequence_length=64, bucket=100).details
    assert (shorter["sequence_length"], shorter["overlap"]) == (64, 0)
    assert [b["last"] for b in shorter["by_position"]["buckets"]] == [63]
    assert {found["tokens"], shorter["tokens"]} == {4 * sum(STEPS)}


def test_pieces_that_end_within_the_trained_length_have_no_beyond():
    found = model_of(Full()).evaluate("test", sequence_length=4096, overlap=0, bucket=1024)
    assert set(found.metrics) >= {"nats_per_token_beyond"}
    assert [b["first"] for b in found.details["by_position"]["buckets"]] == [0], "no empty ones"
    model = model_of(Full())
    short = with_data(model, sequence_length=512)
    assert set(short.evaluate("test", sequence_length=1024).metrics) == {
        "nats_per_token",
        "nats_per_note",
    }


def test_longer_windows_with_smaller_weights():
    model = model_of(Relative(max_distance=16))
    model = MusicModel.of_run(
        Config(data=model.data_settings, model=model.settings.model), model.model.float()
    )
    full = model.evaluate("test", sequence_length=128, overlap=0).metrics
    small = model.with_dtype("bf16").evaluate("test", sequence_length=128, overlap=0).metrics
    assert small.keys() == full.keys()
    for name in full:
        assert small[name] == pytest.approx(full[name], rel=0.02)
        assert small[name] != full[name]


@pytest.mark.parametrize(
    ("attention", "options", "says"),
    [
        (
            OneLength(),
            {"sequence_length": 128},
            "windows of 128 tokens: this variant serves 64 positions",
        ),
        (WithTable(), {"sequence_length": 128}, r"size mismatch for .*table"),
        (Full(), {"sequence_length": 100}, "sequence_length must be a multiple of 64"),
    ],
)
def test_windows_that_cannot_be_are_told_in_a_sentence(attention, options, says):
    with pytest.raises(UserError, match=says):
        model_of(attention).evaluate("test", **options)
