"""Melodies: their extraction by brute force, windows, batches, and models that read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pretty import midi_bytes, pretty, write_midi
from tiny_music import Chorales, Performances, tiny_model

from triptych.core.attention.full import Full
from triptych.core.positions import Sinusoidal
from triptych.decoding.sampling import SampleRequest
from triptych.domains.music.config import Augmentation, Config, DataConfig
from triptych.domains.music.data import (
    TrainingPieces,
    Window,
    evaluation_batches,
    make_batch,
    training_batches,
)
from triptych.domains.music.domain import MusicScoreRequest
from triptych.domains.music.generation import continue_tokens
from triptych.domains.music.melody import (
    PADDING,
    WindowMelody,
    padded,
)
from triptych.domains.music.metrics import token_nll
from triptych.domains.music.midi import parse_midi
from triptych.domains.music.model import MelodyEncoder, ModelConfig, MusicSettings
from triptych.domains.music.notes import SILENT, Notes, performance, to_steps
from triptych.domains.music.task import MusicTrainingModule
from triptych.domains.music.tokenizers.base import MELODY_REST
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import END
from triptych.domains.music.tokenizers.remi import RemiTokenizer
from triptych.errors import UserError
from triptych.types import Sampling

CHORALES, EVENTS = ChoraleTokenizer(), EventTokenizer()


ONE_LAYER = MelodyEncoder(1)
PIECES = Chorales((30, 37, 44), (45, 72))


def model_of(source, *, length=128, overlap=64, melody: MelodyEncoder | None = ONE_LAYER):
    return tiny_model(
        source,
        length=length,
        overlap=overlap,
        n_layers=2,
        attention=Full(),
        positions=Sinusoidal(),
        melody=melody,
    )


def slow_skyline(notes: Notes, n_steps: int, *, first: int = 0, step: int = 1) -> list[int]:
    """The highest pitch that sounds in each `step` x 10 ms from `first` x 10 ms on."""
    onset = to_steps(notes.onset)
    stop = np.maximum(to_steps(notes.release), onset + 1)
    found = []
    for begin in range(first, first + n_steps * step, step):
        sounding = [
            pitch
            for time in range(begin, begin + step)
            for pitch, a, b in zip(notes.pitch.tolist(), onset, stop, strict=True)
            if a <= time < b
        ]
        found.append(max(sounding, default=MELODY_REST))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_melody_of_a_performance_is_its_skyline(seed, busy_piece, parsed):
    notes = performance(parsed(busy_piece(seed)))
    melody = EVENTS.melody(EVENTS.tokens(notes))
    assert melody.tolist() == slow_skyline(notes, int(to_steps(notes.release).max()))


def test_the_melody_of_any_events_is_that_of_their_notes():
    """Also of events that no encoder writes: notes that never end, offs without a note."""
    random = np.random.default_rng(0)
    for length in (0, 1, 2, 30, 200):
        ids = random.integers(0, END, length)
        melody = EVENTS.melody(ids)
        assert melody.tolist() == slow_skyline(EVENTS.decode(ids), len(melody))


def test_the_melody_of_a_chorale_is_its_soprano():
    grid = np.random.default_rng(0).integers(45, 72, (9, 4))
    grid[3, 0] = SILENT
    melody = CHORALES.melody(CHORALES.encode(grid))
    expected = [*grid[:3, 0], MELODY_REST, *grid[4:, 0]]
    assert melody.reshape(9, 4).tolist() == [[pitch] * 4 for pitch in expected]


@pytest.mark.parametrize("semitones", [-3, 0, 5])
def test_a_window_has_the_melody_of_its_own_time_and_transposition(semitones, busy_piece, parsed):
    """In steps that begin with the window, not with the piece."""
    content = performance(parsed(busy_piece(0)))
    ids = EVENTS.tokens(content)
    reader = WindowMelody(EVENTS, 80)
    moved = replace(content, pitch=content.pitch + semitones)
    end = len(EVENTS.melody(ids))
    for start in (0, 1, 80, 333, len(ids) - 1):
        time = round(float(EVENTS.seconds(ids)[start]) * 100)
        n_steps = min(EVENTS.melody_steps(80), -(-(end - time) // 10))
        expected = slow_skyline(moved, n_steps, first=time, step=10) or [MELODY_REST]
        assert reader.of_window(ids, start, semitones).tolist() == expected


def test_a_note_begins_in_the_step_of_the_melody_that_its_token_is_given(busy_piece, parsed):
    """The model's time of each note-on: the melody there is never below the note."""
    ids = EVENTS.tokens(performance(parsed(busy_piece(1))))
    for start in (0, 57, 133):
        window = ids[start : start + 80]
        melody = WindowMelody(EVENTS, 80).of_window(ids, start)
        times = np.cumsum(EVENTS.durations[window]) - EVENTS.durations[window]
        on = window < 128
        steps = times[on] // EVENTS.melody_step
        inside = steps < len(melody)
        assert inside.any()
        assert (melody[steps[inside]] >= window[on][inside]).all()


def test_the_melody_is_cut_where_a_chorale_window_is():
    ids = CHORALES.encode(np.random.default_rng(0).integers(45, 72, (40, 4)))
    melody = WindowMelody(CHORALES, 64).of_window(ids, 64, 2)
    assert melody.tolist() == (ids[64:128:4] + 36 + 2).tolist()


def test_training_crops_have_the_melody_of_their_own_tokens():
    """Transposed with them; the loader's state goes on with the same melodies."""
    config = DataConfig(
        source=PIECES, sequence_length=64, overlap=0, batch_size=2, augmentation=Augmentation(4)
    )
    read = config.source.load("train", CHORALES)
    pieces = TrainingPieces.of(read, CHORALES, config.augmentation)
    settings = MusicSettings(ModelConfig(melody=ONE_LAYER), sequence_length=64, overlap=0)

    def loader():
        return training_batches(pieces, config, settings, seed=3)

    batches = list(loader())
    for batch in batches:
        for row, melody in zip(batch.values, batch.melody, strict=True):
            soprano = row[::4]
            soprano = soprano[soprano >= 0] + 36
            assert melody[: len(soprano)].tolist() == soprano.tolist()
            assert (melody[len(soprano) :] == PADDING).all()
    continued = loader()
    iterator = iter(continued)
    next(iterator)
    state = continued.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    for batch, again in zip(batches[1:], resumed, strict=False):
        assert torch.equal(batch.values, again.values)
        assert torch.equal(batch.melody, again.melody)


def test_a_row_does_not_depend_on_the_longer_melodies_of_its_batch():
    model = model_of(PIECES).model.double().eval()
    pieces = [CHORALES.encode(piece.content) for piece in PIECES.load("test", CHORALES)]
    windows = [Window(tokens, 64) for tokens in pieces]
    settings = MusicSettings(ModelConfig(melody=MelodyEncoder()), sequence_length=64, overlap=0)
    together = make_batch(windows, settings)
    assert (together.melody == PADDING).any()
    nll = token_nll(model, together)
    for row, window in enumerate(windows):
        alone = token_nll(model, make_batch([window], settings))
        torch.testing.assert_close(nll[row, : alone.shape[1]], alone[0], rtol=0, atol=1e-12)


def test_the_melody_matters_and_has_gradients():
    model = model_of(PIECES).model.double()
    tokens = CHORALES.encode(PIECES.load("test", CHORALES)[0].content)
    settings = MusicSettings(ModelConfig(melody=MelodyEncoder()), sequence_length=64, overlap=0)
    batch = make_batch([Window(tokens, 0)], settings)
    other = batch._replace(melody=batch.melody.flip(1))
    assert not torch.allclose(token_nll(model, batch), token_nll(model, other))
    token_nll(model, batch).sum().backward()
    for name, parameter in model.conditioner.encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("source", [PIECES, Performances()])
def test_sampling_sees_the_melody_and_windows_of_the_evaluation(source, busy_piece, parsed):
    """Greedy tokens, sampled with a cache, are the best ones of a pass over the whole window."""
    length, overlap = 128, 64
    model = model_of(source).model.double()
    tokenizer = source.tokenizer
    config = ModelConfig(tokenizer=tokenizer, melody=MelodyEncoder())
    settings = MusicSettings(config, sequence_length=length, overlap=overlap)
    melody = np.random.default_rng(0).integers(50, 80, 90)

    tokens = continue_tokens(
        model,
        SampleRequest(prefix=torch.zeros(2, 0, dtype=torch.int64), length=200, seed=0),
        settings,
        melody,
    )
    greedy = continue_tokens(
        model,
        SampleRequest(prefix=tokens[:, :170], length=220, sampling=Sampling(temperature=0)),
        settings,
        melody,
    )
    with torch.no_grad():
        for place in range(170, 220, 3):
            start = max(0, -(-(place - length + 1) // (length - overlap))) * (length - overlap)
            reader = WindowMelody(tokenizer, length)
            parts = [reader.part(melody, row[:start].numpy()) for row in greedy]
            previous = greedy[:, start - 1] if start else None
            given = model.condition(padded(parts))
            logits = model(greedy[:, start : place + 1], previous, given)[:, -1]
            assert torch.equal(logits.argmax(-1), greedy[:, place])


def test_a_sampled_chorale_is_as_long_as_its_melody(make_piano):
    model = model_of(PIECES)
    line = [(60 + n % 7, n * 0.5, n * 0.5 + 0.5, 80) for n in range(20)]
    made = model.sample(2, melody=make_piano(line))[1]
    grid = CHORALES.from_midi(made.score)
    assert len(grid) == 80


def parse(midi):
    return parse_midi(midi_bytes(midi), name="sample")


def test_evaluation_reads_the_melody_of_each_piece():
    model = model_of(PIECES)
    pieces = [CHORALES.encode(piece.content) for piece in PIECES.load("test", CHORALES)]
    total = n_tokens = 0.0
    with torch.no_grad():
        model.full_model.eval()
        for batch in evaluation_batches(pieces, model.settings, batch_size=1):
            total += token_nll(model.full_model, batch).double().sum().item()
            n_tokens += batch.scored.sum().item()
    found = model.evaluate("test").metrics["nats_per_token"]
    assert found == pytest.approx(total / n_tokens, rel=1e-5)


def test_a_model_and_a_melody_need_each_other(make_piano, tmp_path):
    melody = make_piano([(60, 0.0, 1.0, 80)])
    with pytest.raises(UserError, match="no encoder of melodies"):
        model_of(PIECES, melody=None).sample(1, melody=melody)
    model = model_of(PIECES)
    with pytest.raises(UserError, match="none is given"):
        model.sample(1, length=4)
    with pytest.raises(UserError, match="none is given"):
        model.sample_statistics(MusicScoreRequest(statistics=1))
    with pytest.raises(UserError, match="primer"):
        model.attention()
    assert len(model.attention(primer=write_midi(melody, tmp_path / "melody.mid")).tokens)


def test_melodies_out_of_range_and_without_notes_are_told(make_piano, parsed):
    events, chorales = WindowMelody(EVENTS, 80), WindowMelody(CHORALES, 64)
    with pytest.raises(UserError, match=r"from 110 to 110.*from 21 to 108"):
        events.of_score(parsed(make_piano([(110, 0.0, 1.0, 80)])))
    with pytest.raises(UserError, match="pitch 90"):
        chorales.of_score(parsed(make_piano([(90, 0.0, 1.0, 80)])))
    with pytest.raises(UserError):
        model_of(PIECES).sample(1, melody=make_piano([]))
    silent = np.full((4, 4), SILENT)
    silent[:, 3] = 50
    with pytest.raises(UserError, match="rests alone"):
        chorales.of_score(parse(pretty(CHORALES.to_score(CHORALES.encode(silent)))))


def test_music_without_a_melody_is_told():
    with pytest.raises(ValueError, match="remi has no melody"):
        MelodyEncoder().build(ModelConfig().transformer, RemiTokenizer())


def test_the_samples_of_a_run_accompany_a_melody(tmp_path):
    model = model_of(PIECES)
    data = replace(model.data_settings, sample_seconds=2)
    task = MusicTrainingModule(Config(data=data, model=model.settings.model))
    (piece, *_) = PIECES.load("test", CHORALES)
    task.sampled_melody = CHORALES.melody(CHORALES.encode(piece.content))
    task.log_samples(tmp_path)
    assert (tmp_path / "piece-00.mid").exists()
    assert (tmp_path / "attention.png").exists()
