from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_music import Chorales

from triptych.domains.music.config import Augmentation, DataConfig
from triptych.domains.music.data import NO_PREVIOUS, TrainingPieces, draw, training_batches
from triptych.domains.music.melody import PADDING
from triptych.domains.music.midi import MAX_SECONDS
from triptych.domains.music.model import ModelConfig, MusicSettings
from triptych.domains.music.notes import SILENT
from triptych.domains.music.sources.base import Piece
from triptych.domains.music.tokenizers.chorales import HIGHEST, LOWEST, ChoraleTokenizer
from triptych.domains.music.tokenizers.events import PIANO_HIGHEST, PIANO_LOWEST, EventTokenizer
from triptych.training.loading.batches import generator_for, shuffled_batches

NO_AUGMENTATION = Augmentation(transpose=0, stretch=(1.0,))
encode_notes, decode_notes = EventTokenizer().encode, EventTokenizer().decode


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def vary_notes(notes, settings, generator):
    """The reference: a whole performance is moved, stretched, and only then written as ids."""
    shifts = settings.shifts(notes.pitch, PIANO_LOWEST, PIANO_HIGHEST)
    moved = replace(notes, pitch=notes.pitch + draw(shifts, generator))
    last = notes.release.max(initial=0.0)
    factors = [f for f in settings.stretch if f <= 1 or last * f <= MAX_SECONDS]
    return EventTokenizer().stretched(moved, [draw(factors or [1.0], generator)])[0]


def transpose_grid(grid, settings, generator):
    """The reference for chorales."""
    shifts = settings.shifts(grid[grid != SILENT], LOWEST, HIGHEST)
    return np.where(grid == SILENT, SILENT, grid + draw(shifts, generator))


def starts_of(n_tokens, bar):
    """The reference: crops of 128 tokens that may begin before the piece or end after it."""
    last = max(0, n_tokens - 128)
    last += -last % bar
    beyond = max(bar, min(128, n_tokens) // bar * bar)
    return [min(max(0, start), last) for start in range(bar - beyond, last + beyond, bar)]


def grids():
    random = np.random.default_rng(0)
    found = [random.integers(40, 78, (steps, 4)) for steps in (40, 100, 7)]
    found[0][3:20, 1] = SILENT
    return [*found, np.full((30, 4), SILENT)]


@pytest.mark.parametrize("augmentation", [Augmentation(), NO_AUGMENTATION, Augmentation(5, (0.5,))])
@pytest.mark.parametrize("tokenizer", [EventTokenizer(), ChoraleTokenizer()])
def test_crops_are_those_of_the_slow_form(tokenizer, augmentation, busy_piece, sounding):
    """The same function of (seed, epoch, index) as tokens of the whole varied piece."""
    vary, contents = transpose_grid, grids()
    if isinstance(tokenizer, EventTokenizer):
        vary = vary_notes
        contents = [sounding(busy_piece(seed)) for seed in range(3)]
        late = [contents[1].onset + 7000, contents[1].release + 7000]  # seconds
        contents[1] = replace(contents[1], onset=late[0], release=late[1])
        contents[2] = replace(contents[2], pitch=contents[2].pitch % 12 + 100)
    config = DataConfig(
        source=Chorales(), sequence_length=128, overlap=64, batch_size=3, augmentation=augmentation
    )
    pieces = [Piece(str(number), content) for number, content in enumerate(contents)]
    settings = MusicSettings(ModelConfig(tokenizer=tokenizer), sequence_length=128, overlap=64)
    encoded = TrainingPieces.of(pieces, tokenizer, augmentation)
    loader = training_batches(encoded, config, settings, seed=3)
    items = [c for c in contents for _ in range(-(-len(tokenizer.tokens(c)) // 128))]
    assert loader.n_items == len(items)
    for epoch in range(3):
        planned = shuffled_batches(len(items), 3)(epoch, generator_for(3, epoch))
        for index, (batch, numbers) in enumerate(zip(loader, planned, strict=True)):
            drawn = generator_for(3, epoch, index, 1)
            for row, number in enumerate(numbers):
                tokens = tokenizer.tokens(vary(items[number], augmentation, drawn))
                start = draw(starts_of(len(tokens), tokenizer.bar), drawn)
                part = tokens[start : start + 128]
                assert batch.values[row, : len(part)].tolist() == part.tolist()
                assert (batch.values[row, len(part) :] == PADDING).all()
                assert batch.previous[row] == (tokens[start - 1] if start else NO_PREVIOUS)
                onsets = tokenizer.onsets(tokens)[start : start + 128]
                assert batch.onsets[row, : len(part)].tolist() == onsets.tolist()
                assert batch.scored[row].sum() == len(part)


@pytest.mark.parametrize("factor", [0.5, 0.95, 1.025, 2.0])
def test_stretching_moves_all_times_and_stays_encodable(busy_piece, sounding, factor):
    notes = sounding(busy_piece(1))
    (longer,) = EventTokenizer().stretched(notes, [factor])
    assert longer.onset[-1] == pytest.approx(notes.onset[-1] * factor)
    ids = encode_notes(longer)
    again = decode_notes(ids)
    assert len(again) == len(longer)
    assert np.abs(again.onset - longer.onset[np.argsort(longer.onset)]).max() <= 0.005 + 1e-9


def test_a_copy_that_leaves_the_range_is_not_made():
    shifts = Augmentation(transpose=3).shifts
    assert shifts(np.array([60, 107]), 21, 108) == [-3, -2, -1, 0, 1]
    assert shifts(np.array([22, 60]), 21, 108) == [-1, 0, 1, 2, 3]
    assert shifts(np.array([21, 108]), 21, 108) == [0]
    assert shifts(np.array([5, 60]), 21, 108) == [0]


@pytest.mark.parametrize("settings", [{"stretch": ()}, {"stretch": (0.0,)}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match="stretch"):
        Augmentation(**settings)
