from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tiny_music import Chorales, Performances, windows_of

from triptych.domains.music import data
from triptych.domains.music.config import Augmentation, Config, DataConfig
from triptych.domains.music.data import (
    NO_PREVIOUS,
    PADDING,
    TrainingPieces,
    Window,
    evaluation_batches,
    make_batch,
    read_training_and_validation,
    training_batches,
)
from triptych.domains.music.domain import DOMAIN
from triptych.domains.music.model import ModelConfig
from triptych.domains.music.notes import Notes
from triptych.domains.music.sources.base import Piece
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer
from triptych.domains.music.tokenizers.key_events import END, NOTE_OFF, SYMBOLS
from triptych.errors import UserError
from triptych.training.loading.packed import Pack


def chorales(steps, seed=0):
    random = np.random.default_rng(seed)
    return [Piece(f"p{n}", random.integers(40, 78, (s, 4))) for n, s in enumerate(steps)]


def settings(**changes):
    defaults = {"source": Chorales(), "sequence_length": 128, "overlap": 64, "batch_size": 3}
    config = DataConfig(**{**defaults, **changes})
    return Config(config, ModelConfig(tokenizer=config.source.tokenizer))


def texts(pieces, kind=Chorales.tokenizer):
    return [kind.tokens(piece.content) for piece in pieces]


def crops(pieces, config, seed):
    data, tokenizer = config.data, config.model.tokenizer
    encoded = TrainingPieces.of(pieces, tokenizer, data.augmentation)
    return training_batches(encoded, data, config.model_settings(), seed=seed)


def windows(pieces, config, batch_size):
    return evaluation_batches(pieces, config.model_settings(), batch_size=batch_size)


@pytest.mark.parametrize("n_tokens", [1, 5, 8, 9, 12, 13, 100])
@pytest.mark.parametrize("overlap", [0, 3, 7])
def test_each_token_is_scored_once_with_its_context(n_tokens, overlap):
    tokens = np.arange(n_tokens)
    times_scored = np.zeros(n_tokens, dtype=int)
    settings = windows_of(8, overlap)
    for start in settings.window_starts(n_tokens):
        batch = make_batch([Window(tokens, start, overlap if start else 0)], settings)
        assert batch.previous[0] == (start - 1 if start else NO_PREVIOUS)
        for place in batch.scored[0].nonzero().flatten().tolist():
            token = int(batch.values[0, place])
            times_scored[token] += 1
            # What it sees is its context, or all of the piece so far.
            assert place >= min(overlap, token)
    assert (times_scored == 1).all()


def test_window_starts_by_hand():
    starts = windows_of(8, 4).window_starts
    assert (starts(8), starts(9), starts(17)) == ([0], [0, 4], [0, 4, 8, 12])


@dataclass(frozen=True)
class Three(Performances):
    """Three performances, of which the second is too long to be slowed down."""

    def stream(self, split, tokenizer):
        times = [(1, 2), (5000, 7000), (0, 3)][: 1 if split == "validation" else 3]
        return [Piece("p", Notes.of([(60 + a % 7, a, b, 64)])) for a, b in times]


@pytest.mark.parametrize("chunk", [1, 2, 64])
def test_a_pack_holds_ids_speeds_and_pitches(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(data, "CHUNK", chunk)
    stretch = (0.5, 1.0, 2.0)
    config = settings(source=Three(), augmentation=Augmentation(stretch=stretch))
    assert "3 training pieces" in DOMAIN.pack(config, str(tmp_path))
    found, kind = Pack(tmp_path, "music"), EventTokenizer()
    first, second, third = (piece.content for piece in Three().load("train", kind))
    contents = [
        first, *kind.stretched(first, [0.5, 2]), second,
        *kind.stretched(second, [0.5]), third, *kind.stretched(third, [0.5, 2]),
    ]  # fmt: skip
    rows = [row.tolist() for row in found.ragged("tokens")]
    assert rows == [kind.tokens(content).tolist() for content in contents]
    assert found.array("whole").tolist() == [0, 3, 5]
    assert [row.tolist() for row in found.ragged("speeds")] == [[1, 0, 2], [4, 3], [6, 5, 7]]
    assert found.array("pitches").tolist() == [[61, 61], [62, 62], [60, 60]]
    assert [row.tolist() for row in found.ragged("validation")] == [rows[0]]
    assert found.ragged("tokens").values.dtype == np.uint16
    packed = replace(config.data, packed=str(tmp_path))
    train, validation = read_training_and_validation(packed, kind)
    assert train.speeds[1].tolist() == [4, 3]
    assert [ids.tolist() for ids in validation] == [rows[0]]
    other = replace(packed, augmentation=Augmentation(stretch=(1.0,)))
    with pytest.raises(UserError, match="stretch"):
        read_training_and_validation(other, kind)
    with pytest.raises(UserError, match="tokenizer"):
        read_training_and_validation(packed, ChoraleTokenizer())


@pytest.mark.parametrize("batch_size", [1, 2, 50])
def test_the_evaluation_holds_whole_pieces_unvaried(batch_size):
    pieces = chorales([40, 100, 16, 33])
    kind = ChoraleTokenizer()
    heard = [[] for _ in pieces]
    number = -1
    for batch in windows(texts(pieces), settings(), batch_size):
        for values, previous, scored in zip(
            batch.values, batch.previous, batch.scored, strict=True
        ):
            number += int(previous == NO_PREVIOUS)
            heard[number] += values[scored].tolist()
            assert not scored[values == PADDING].any()
    assert heard == [kind.tokens(piece.content).tolist() for piece in pieces]


def test_notes_are_counted_once_however_windows_cut_them():
    pieces = chorales([40, 100, 16, 33])
    kind = ChoraleTokenizer()
    whole = sum(int(kind.onsets(kind.tokens(piece.content)).sum()) for piece in pieces)
    batches = windows(texts(pieces), settings(sequence_length=64, overlap=0), 5)
    assert sum(int(batch.onsets.sum()) for batch in batches) == whole


def test_large_windows_are_scored_few_at_a_time():
    config = settings(sequence_length=8192, overlap=64)
    batches = list(windows(texts(chorales([16] * 9)), config, 64))
    assert max(len(batch.values) for batch in batches) == 2


def test_every_token_can_be_in_a_crop():
    generator = torch.Generator().manual_seed(0)
    config = DataConfig(Chorales(), sequence_length=128)
    for n_steps in (1, 31, 32, 33, 100, 128):
        pieces = TrainingPieces.of(chorales([n_steps]), Chorales.tokenizer, config.augmentation)
        reached = set()
        for _ in range(200):
            start = pieces.crop(0, config, Chorales.tokenizer, generator).start
            assert start % 64 == 0
            assert start < 4 * n_steps
            reached |= set(range(start, min(4 * n_steps, start + 128)))
        assert reached == set(range(4 * n_steps))


def test_the_beginning_and_the_end_are_in_as_many_crops_as_the_middle():
    """Else a model has hardly read how a piece begins, and samples begin at random."""
    generator = torch.Generator().manual_seed(0)
    config = DataConfig(Chorales(), sequence_length=128)
    n_bars = 40
    pieces = TrainingPieces.of(chorales([16 * n_bars]), Chorales.tokenizer, config.augmentation)
    count = np.zeros(n_bars)
    for _ in range(3000):
        bar = pieces.crop(0, config, Chorales.tokenizer, generator).start // 64
        count[bar : bar + 2] += 1
    assert count.min() > 0.7 * count[n_bars // 2]


def test_performances_end_with_end_and_chorales_do_not(busy_piece, sounding):
    kind = EventTokenizer()
    tokens = kind.tokens(sounding(busy_piece(0)))
    assert tokens[-1] == END == kind.end == len(SYMBOLS) - 1
    assert (tokens == END).sum() == 1
    assert kind.onsets(tokens).sum() == len(sounding(busy_piece(0)))
    assert (tokens[kind.onsets(tokens)] < NOTE_OFF).all()
    assert ChoraleTokenizer().end is None


def test_the_end_of_a_performance_is_learnt_and_scored(busy_piece, sounding):
    """A model that is never asked for END never stops."""
    pieces = [Piece("p", sounding(busy_piece(seed))) for seed in range(2)]
    config = settings(
        source=Performances(), sequence_length=1024, overlap=0
    )  # a crop is a whole piece
    trained = next(iter(crops(pieces, config, seed=0)))
    assert trained.scored[trained.values == END].tolist() == [True, True]
    cut = settings(source=Performances(), sequence_length=100, overlap=50)
    scored = [
        int((batch.values[batch.scored] == END).sum())
        for batch in windows(texts(pieces, EventTokenizer()), cut, 3)
    ]
    assert sum(scored) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sequence_length": 100}, "sequence_length must be a multiple of 64 tokens"),
        ({"overlap": 128}, "overlap must be less than sequence_length"),
    ],
)
def test_impossible_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        settings(**changes)


def test_performances_have_no_bars_to_keep_to():
    made = settings(source=Performances(), sequence_length=100, overlap=10)
    assert made.data.sequence_length == 100
