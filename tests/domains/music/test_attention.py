"""What a note was predicted from: the right query, the right tokens, a picture."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from random_head import with_random_head

from triptych.core.attention.full import Full
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.core.feed_forward import GELU
from triptych.core.positions import NoPositions
from triptych.core.transformer import TransformerConfig
from triptych.domains.music import events
from triptych.domains.music.attention import attend, query_at, tokens_of
from triptych.domains.music.attention_picture import draw
from triptych.domains.music.chorales import SECONDS_PER_STEP
from triptych.domains.music.data import DataConfig
from triptych.domains.music.events import NOTE_OFF, NOTE_ON, SHIFT, VELOCITY
from triptych.domains.music.midi import write_midi
from triptych.domains.music.model import ModelConfig
from triptych.domains.music.representation import ChoraleGrid, PerformanceEvents
from triptych.domains.music.sources import PieceSource
from triptych.domains.music.task import Config, MusicTask
from triptych.errors import UserError


@dataclass(frozen=True)
class Chorales(PieceSource):
    representation: ClassVar = ChoraleGrid()

    def load(self, split):
        return []


@dataclass(frozen=True)
class Performances(PieceSource):
    representation: ClassVar = PerformanceEvents()

    def load(self, split):
        return []


def task_of(source, attention=None, *, length=64):
    torch.manual_seed(0)
    sizes = ModelConfig(
        TransformerConfig(
            n_layers=2,
            d_model=16,
            n_heads=2,
            feed_forward=GELU(32),
            attention=attention or Relative(max_distance=9),
            positions=NoPositions(),
        )
    )
    data = DataConfig(source=source, length=length, context=0)
    return with_random_head(MusicTask(Config(data=data, model=sizes))).double().eval()


def chorale(steps=30):
    grid = np.random.default_rng(0).integers(40, 80, (steps, 4))
    grid[3, 1] = -1
    return ChoraleGrid().tokens(type("P", (), {"content": grid})), grid


def test_chorale_tokens_stand_at_their_16th_with_their_pitch():
    tokens, grid = chorale()
    seconds, pitch = ChoraleGrid().places(tokens[:-2])
    assert seconds.tolist() == [n // 4 * SECONDS_PER_STEP for n in range(118)]
    assert pitch.tolist() == grid.reshape(-1)[:118].tolist()
    assert pitch[13] == -1


def test_events_stand_where_the_time_has_come_to():
    tokens = np.array(
        [VELOCITY + 3, NOTE_ON + 60, SHIFT + 99, SHIFT + 49, NOTE_OFF + 60, events.END]
    )
    seconds, pitch = PerformanceEvents().places(tokens)
    assert seconds.tolist() == [0, 0, 0, 1.0, 1.5, 1.5]
    assert pitch.tolist() == [-1, 60, -1, -1, 60, -1]


def test_the_query_is_the_token_of_a_note_that_begins():
    task, (tokens, grid) = task_of(Chorales()), chorale()
    at = query_at(task, tokens, 5 * SECONDS_PER_STEP)
    assert at // 4 == 5
    assert grid[5, at % 4] != grid[4, at % 4]
    last = query_at(task, tokens, None)
    assert task.representation.onsets(tokens)[last]
    assert not task.representation.onsets(tokens)[last + 1 :].any()
    with pytest.raises(UserError, match=r"begins at 99 s or later; the last one begins at 5\.8. s"):
        query_at(task, tokens, 99.0)
    with pytest.raises(UserError, match="the piece has no note"):
        query_at(task, tokens[:0], None)


@pytest.mark.parametrize(
    "attention", [Relative(max_distance=9), Full(), PitchTime()], ids=lambda a: type(a).__name__
)
@pytest.mark.parametrize("query", [0, 5, 63, 64, 90])
def test_the_reads_are_the_last_row_of_the_models_weights(attention, query):
    """Key j holds token j - 1, key 0 what stands before; also where the window has moved on."""
    task, (tokens, _) = task_of(Chorales(), attention), chorale()
    found = attend(task, tokens, query, layer=1)
    first = 64 if query >= 64 else 0
    assert (found.first, len(found.seconds), len(found.pitch)) == (first, *2 * [query - first + 1])
    ids = torch.from_numpy(tokens[first : query + 1]).unsqueeze(0)
    previous = torch.tensor([tokens[first - 1] if first else -1])
    model, block = task.model, task.model.decoder.blocks[0]
    with torch.no_grad():
        x = model._inputs(ids[:, :-1], previous, None)
        symbols = model._token_ids(ids[:, :-1], previous)
        weights = block.attention.weights(block.attention_residual.before(x), None, symbols)
    assert found.heads == pytest.approx(weights[0, :, -1, 1:].numpy(), abs=1e-12)
    before = weights[0, :, -1, 0].numpy()
    assert found.heads.sum(1) + before == pytest.approx(1, abs=1e-12)
    assert found.reads == pytest.approx(found.heads.mean(0))
    one = attend(task, tokens, query, layer=1, head=2)
    assert one.reads == pytest.approx(found.heads[1])
    assert attend(task, tokens, query).layer == 2


def test_what_is_not_there_is_told():
    task, (tokens, _) = task_of(Chorales()), chorale()
    for options, says in (
        ({"layer": 3}, "layer must be from 1 to 2"),
        ({"head": 0}, "head must"),
        ({"head": 3}, "head must"),
    ):
        with pytest.raises(UserError, match=says):
            attend(task, tokens, 5, **options)


def test_tokens_of_a_sample_and_of_a_primer(tmp_path, make_piano):
    pianist = task_of(Performances())
    drawn = tokens_of(pianist, primer=None, seconds=0.5, seed=3)
    assert len(drawn)
    assert events.END not in drawn
    assert (tokens_of(pianist, primer=None, seconds=0.5, seed=3) == drawn).all()
    path = write_midi(make_piano([(60, 0, 1, 64), (64, 1, 2, 64)]), tmp_path / "p.mid")
    tokens = tokens_of(pianist, primer=path, seconds=0.5, seed=3)
    seconds, pitch = pianist.representation.places(tokens)
    assert (seconds[query_at(pianist, tokens, None)], pitch[query_at(pianist, tokens, None)]) == (
        1,
        64,
    )
    high = write_midi(make_piano([(100, 0, 1, 64)]), tmp_path / "high.mid")
    with pytest.raises(UserError, match=r"high\.mid"):
        tokens_of(task_of(Chorales()), primer=high, seconds=1, seed=0)


@pytest.mark.parametrize("query", [0, 70, 119])
def test_a_picture_is_drawn(query):
    task, (tokens, _) = task_of(Chorales()), chorale()
    content = draw(attend(task, tokens, query), task.representation.to_midi(tokens))
    with Image.open(io.BytesIO(content)) as picture:
        assert (picture.format, picture.size) == ("PNG", (1100, 660))
