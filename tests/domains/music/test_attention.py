"""What a note was predicted from: the right query, the right tokens, a picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from pretty import write_midi
from tiny_music import Chorales, Performances, tiny_model

from triptych.core.attention.full import Full
from triptych.core.attention.pitch_time import PitchTime
from triptych.core.attention.relative import Relative
from triptych.domains.music import attention
from triptych.domains.music.attention import attention_png, find_query, note_attention
from triptych.domains.music.tokenizers.chorales import SECONDS_PER_STEP, ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import END, NOTE_OFF, NOTE_ON, SHIFT, VELOCITY
from triptych.errors import UserError
from triptych.files.drawing import png


def model_of(source, attention=None, *, length=64):
    model = tiny_model(source, length=length, n_layers=2, attention=attention)
    model.full_model.double()
    return model


def attend(model, tokens, query, *, layer=2, head=None):
    return note_attention(model.model, model.settings, tokens, query, layer=layer, head=head)


def chorale(steps=30):
    grid = np.random.default_rng(0).integers(40, 80, (steps, 4))
    grid[3, 1] = -1
    return ChoraleTokenizer().tokens(grid), grid


def test_chorale_tokens_stand_at_their_16th_with_their_pitch():
    tokens, grid = chorale()
    tokenizer = ChoraleTokenizer()
    seconds, pitch = tokenizer.seconds(tokens[:-2]), tokenizer.pitches(tokens[:-2])
    assert seconds.tolist() == [n // 4 * SECONDS_PER_STEP for n in range(118)]
    assert pitch.tolist() == grid.reshape(-1)[:118].tolist()
    assert pitch[13] == -1


def test_events_stand_where_the_time_has_come_to():
    tokens = np.array([VELOCITY + 3, NOTE_ON + 60, SHIFT + 99, SHIFT + 49, NOTE_OFF + 60, END])
    seconds, pitch = EventTokenizer().seconds(tokens), EventTokenizer().pitches(tokens)
    assert seconds.tolist() == [0, 0, 0, 1.0, 1.5, 1.5]
    assert pitch.tolist() == [-1, 60, -1, -1, 60, -1]


def test_the_query_is_the_token_of_a_note_that_begins():
    model, (tokens, grid) = model_of(Chorales()), chorale()
    at = find_query(model.tokenizer, tokens, 5 * SECONDS_PER_STEP)
    assert at // 4 == 5
    assert grid[5, at % 4] != grid[4, at % 4]
    last = find_query(model.tokenizer, tokens, None)
    assert model.tokenizer.onsets(tokens)[last]
    assert not model.tokenizer.onsets(tokens)[last + 1 :].any()
    with pytest.raises(UserError, match=r"begins at 99 s or later; the last one begins at 5\.8. s"):
        find_query(model.tokenizer, tokens, 99.0)
    with pytest.raises(UserError, match="the piece has no note"):
        find_query(model.tokenizer, tokens[:0], None)


@pytest.mark.parametrize(
    "attention", [Relative(max_distance=9), Full(), PitchTime()], ids=lambda a: type(a).__name__
)
@pytest.mark.parametrize("query", [0, 5, 63, 64, 90])
def test_the_reads_are_the_last_row_of_the_models_weights(attention, query):
    """Key j holds token j - 1, key 0 what stands before; also where the window has moved on."""
    model, (tokens, _) = model_of(Chorales(), attention), chorale()
    found = attend(model, tokens, query, layer=1)
    first = 64 if query >= 64 else 0
    assert (found.first, len(found.seconds), len(found.pitches)) == (
        first,
        *2 * [query - first + 1],
    )
    ids = torch.from_numpy(tokens[first : query + 1]).unsqueeze(0)
    previous = torch.tensor([tokens[first - 1] if first else -1])
    core, block = model.model, model.model.decoder.blocks[0]
    with torch.no_grad():
        x, context = core._inputs(ids[:, :-1], previous, None)
        weights = block.attention.weights(block.attention_residual.norm(x), context)
    assert found.heads == pytest.approx(weights[0, :, -1, 1:].numpy(), abs=1e-12)
    before = weights[0, :, -1, 0].numpy()
    assert found.heads.sum(1) + before == pytest.approx(1, abs=1e-12)
    assert found.weights == pytest.approx(found.heads.mean(0))
    one = attend(model, tokens, query, layer=1, head=2)
    assert one.weights == pytest.approx(found.heads[1])
    assert attend(model, tokens, query).layer == 2


def test_missing_layers_and_heads_are_refused_before_a_piece_is_sampled(monkeypatch):
    model = model_of(Chorales())
    monkeypatch.setattr("triptych.domains.music.inference.sample_pieces", None)
    for options, says in (
        ({"layer": 3}, "layer must be from 1 to 2"),
        ({"head": 0}, "head must"),
        ({"head": 3}, "head must"),
    ):
        with pytest.raises(UserError, match=says):
            model.attention(**options)


def test_attention_of_a_sample_and_of_a_primer(tmp_path, make_piano):
    pianist = model_of(Performances())
    found = pianist.attention(seconds=0.5, seed=3, layer=1, head=2)
    assert (found.layer, found.head) == (1, 2)
    assert len(found.tokens)
    assert END not in found.tokens
    assert (pianist.attention(seconds=0.5, seed=3).tokens == found.tokens).all()
    path = write_midi(make_piano([(60, 0, 1, 64), (64, 1, 2, 64)]), tmp_path / "p.mid")
    found = pianist.attention(primer=path)
    assert (found.seconds[-1], found.pitches[-1]) == (1, 64)
    assert found.layer == 2
    assert pianist.attention(primer=path, at=0).pitches[-1] == 60


@pytest.mark.parametrize("query", [0, 70, 119])
def test_a_picture_is_drawn(query, monkeypatch):
    """Of each head the sum of the weights in an instant, an arc to each note with a pitch."""
    figures = []
    monkeypatch.setattr(attention, "png", lambda figure: figures.append(figure) or png(figure))
    model, (tokens, _) = model_of(Chorales()), chorale()
    found = attend(model, tokens, query)
    content = attention_png(found, model.tokenizer.to_score(tokens))
    with Image.open(io.BytesIO(content)) as picture:
        assert (picture.format, picture.size) == ("PNG", (1000, 600))
    roll, rows = figures[0].axes[:2]
    (mesh,) = rows.collections
    times = np.unique(found.seconds)
    by_hand = np.array([found.heads[:, found.seconds[:-1] == time].sum(1) for time in times])
    assert np.allclose(mesh.get_array(), by_hand.T)
    assert mesh.get_coordinates()[:, 0, 1].tolist() == [0.5, 1.5, 2.5]
    assert np.allclose(mesh.get_coordinates()[0, :-1, 0], times)
    assert rows.get_yticks().tolist() == [1, 2]
    assert rows.get_ylim() == (2.5, 0.5), "the first head above"
    end = max(times[-1] + 0.06 * (times[-1] - times[0]), times[-1] + 0.3)
    assert roll.get_xlim() == pytest.approx((times[0], end))
    share = found.weights / max(found.weights.max(initial=0), 1e-9)
    drawn = np.argsort(share)[::-1][: attention.MAX_ARCS]
    drawn = [t for t in drawn if found.pitches[t] >= 0 and share[t] >= attention.MIN_ARC]
    assert len(roll.patches) == len(drawn)
    sounding = found.pitches[found.pitches >= 0]
    low, high = roll.get_ylim()
    assert low < sounding.min() <= sounding.max() < high, "every note is inside"
    points = [tuple(line.get_xydata()[0]) for line in roll.lines]
    assert points == [(found.seconds[t], found.pitches[t]) for t in [*drawn, -1]]
    notes = sum(line.get_segments()[0][1][0] > times[0] for line in roll.collections)
    assert notes == len(roll.collections) > 0
