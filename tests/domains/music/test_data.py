from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from triptych.domains.music.augment import Augmentation
from triptych.domains.music.data import (
    NO_PREVIOUS,
    PADDING,
    DataConfig,
    crop_lengths,
    crop_start,
    evaluation_loader,
    evaluation_windows,
    make_batch,
    training_loader,
    window_starts,
)
from triptych.domains.music.data import Written as WrittenPiece
from triptych.domains.music.events import END, NOTE_OFF, VOCABULARY_SIZE, reference_notes
from triptych.domains.music.representation import ChoraleGrid, PerformanceEvents, Piece
from triptych.domains.music.sources import PieceSource
from triptych.training.data import padding_share


@dataclass(frozen=True)
class Chorales(PieceSource):
    representation: ClassVar = ChoraleGrid()

    def load(self, split):
        return chorales([40, 100, 16])


@dataclass(frozen=True)
class Performances(PieceSource):
    representation: ClassVar = PerformanceEvents()

    def load(self, split):
        return []


def chorales(steps, seed=0):
    random = np.random.default_rng(seed)
    return [Piece(f"p{n}", random.integers(40, 78, (s, 4))) for n, s in enumerate(steps)]


def settings(**changes):
    defaults = {"source": Chorales(), "length": 128, "context": 64, "batch_size": 3}
    return DataConfig(**{**defaults, **changes})


def test_padding_is_no_id_of_any_representation():
    for kind in (ChoraleGrid(), PerformanceEvents()):
        assert PADDING < 0 <= kind.vocabulary_size
    assert PADDING == NO_PREVIOUS == -1  # what the core takes for "no token before"


@pytest.mark.parametrize("n_tokens", [1, 5, 8, 9, 12, 13, 100])
@pytest.mark.parametrize("context", [0, 3, 7])
def test_each_token_is_scored_once_with_its_context(n_tokens, context):
    tokens = np.arange(n_tokens)
    piece = WrittenPiece(tokens, tokens % 2 == 0)
    times_scored = np.zeros(n_tokens, dtype=int)
    for window in evaluation_windows([piece], length=8, context=context):
        batch = make_batch([(piece, window.start, window.skip)], length=8)
        assert batch.previous[0] == (window.start - 1 if window.start else NO_PREVIOUS)
        for place in batch.scored[0].nonzero().flatten().tolist():
            token = int(batch.values[0, place])
            times_scored[token] += 1
            # What it sees is its context, or all of the piece so far.
            assert place >= min(context, token)
    assert (times_scored == 1).all()


def test_window_starts_by_hand():
    assert window_starts(8, length=8, context=4) == [0]
    assert window_starts(9, length=8, context=4) == [0, 4]
    assert window_starts(17, length=8, context=4) == [0, 4, 8, 12]


@pytest.mark.parametrize("batch_size", [1, 2, 50])
def test_the_evaluation_holds_whole_pieces_unvaried(batch_size):
    pieces = chorales([40, 100, 16, 33])
    kind = ChoraleGrid()
    heard = [[] for _ in pieces]
    number = -1
    for batch in evaluation_loader(pieces, settings(), batch_size=batch_size):
        for values, previous, scored in zip(
            batch.values, batch.previous, batch.scored, strict=True
        ):
            number += int(previous == NO_PREVIOUS)
            heard[number] += values[scored].tolist()
            assert not scored[values == PADDING].any()
    assert heard == [kind.tokens(piece).tolist() for piece in pieces]


def test_notes_are_counted_once_however_windows_cut_them():
    pieces = chorales([40, 100, 16, 33])
    kind = ChoraleGrid()
    whole = sum(int(kind.onsets(kind.tokens(piece)).sum()) for piece in pieces)
    batches = evaluation_loader(pieces, settings(length=64, context=0), batch_size=5)
    assert sum(int(batch.onsets.sum()) for batch in batches) == whole


def test_large_windows_are_scored_few_at_a_time():
    config = settings(length=8192, context=64)
    batches = list(evaluation_loader(chorales([16] * 9), config, batch_size=64))
    assert max(len(batch.values) for batch in batches) == 2


def test_chorale_crops_start_at_bars_and_know_the_token_before():
    pieces = chorales([100, 70])
    kind = ChoraleGrid()
    texts = [kind.tokens(piece) for piece in pieces]
    config = settings(augmentation=Augmentation(transpose=0), batch_size=4)
    loader = training_loader(pieces, config, seed=1)
    starts = set()
    for _ in range(12):
        for batch in loader:
            for values, previous in zip(batch.values.numpy(), batch.previous.numpy(), strict=True):
                row = values[values != PADDING]
                found = [
                    (number, start)
                    for number, text in enumerate(texts)
                    for start in range(0, len(text), 64)
                    if len(text[start : start + 128]) == len(row)
                    and (text[start : start + 128] == row).all()
                ]
                assert len(found) == 1
                number, start = found[0]
                assert previous == (texts[number][start - 1] if start else NO_PREVIOUS)
                starts.add((number, start))
    # 400 tokens need starts to 320 so that all are heard, 280 tokens to 192.
    assert starts == {(0, s) for s in range(0, 321, 64)} | {(1, s) for s in range(0, 193, 64)}


def test_every_token_can_be_in_a_crop():
    generator = torch.Generator().manual_seed(0)
    for n_tokens in (1, 63, 64, 65, 200, 256):
        reached = set()
        for _ in range(200):
            start = crop_start(n_tokens, length=64, unit=16, generator=generator)
            assert start % 16 == 0
            assert start < n_tokens
            reached |= set(range(start, min(n_tokens, start + 64)))
        assert reached == set(range(n_tokens))


def test_crops_are_transposed_with_what_stands_before_them():
    piece = Piece("p", np.full((100, 4), 60))
    config = settings(augmentation=Augmentation(transpose=5), batch_size=1)
    loader = training_loader([piece], config, seed=0)
    shifts = set()
    for _ in range(20):
        for batch in loader:
            ids = set(batch.values[batch.values >= 0].tolist())
            assert len(ids) == 1
            if batch.previous[0] >= 0:
                assert batch.previous.tolist() == list(ids)
            shifts |= ids
    assert len(shifts) > 5


def test_training_batches_depend_on_the_seed_alone():
    def run(seed):
        loader = training_loader(chorales([100, 70, 33]), settings(), seed=seed)
        return [batch.values.tolist() for _ in range(2) for batch in loader]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_performances_end_with_end_and_chorales_do_not(busy_piece):
    kind = PerformanceEvents()
    tokens = kind.tokens(Piece("p", reference_notes(busy_piece(0))))
    assert tokens[-1] == END == kind.end == VOCABULARY_SIZE - 1
    assert (tokens == END).sum() == 1
    assert kind.onsets(tokens).sum() == len(reference_notes(busy_piece(0)))
    assert (tokens[kind.onsets(tokens)] < NOTE_OFF).all()
    assert ChoraleGrid().end is None


def test_the_end_of_a_performance_is_learnt_and_scored(busy_piece):
    """A model that is never asked for END never stops."""
    pieces = [Piece("p", reference_notes(busy_piece(seed))) for seed in range(2)]
    config = settings(source=Performances(), length=1024, context=0)  # a crop is a whole piece
    trained = next(iter(training_loader(pieces, config, seed=0)))
    assert trained.scored[trained.values == END].tolist() == [True, True]
    cut = settings(source=Performances(), length=100, context=50)
    scored = [
        int((batch.values[batch.scored] == END).sum())
        for batch in evaluation_loader(pieces, cut, batch_size=3)
    ]
    assert sum(scored) == 2


def test_performance_crops_start_anywhere_and_reach_the_end(busy_piece):
    pieces = [Piece("p", reference_notes(busy_piece(seed))) for seed in range(2)]
    config = settings(source=Performances(), length=100, context=50)
    loader = training_loader(pieces, config, seed=0)
    batches = [batch for _ in range(5) for batch in loader]
    assert {batch.values.shape[1] for batch in batches} == {100}
    assert all((batch.scored == (batch.values >= 0)).all() for batch in batches)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"length": 100}, "length must be a multiple of 64 tokens"),
        ({"context": 10}, "context must be a multiple of 64 tokens"),
        ({"context": 128}, "context must be from 0 to less than length"),
        ({"context": -64}, "context must be"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"samples": -1}, "samples"),
    ],
)
def test_impossible_settings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        settings(**changes)


def test_performances_have_no_bars_to_keep_to():
    assert settings(source=Performances(), length=100, context=10).length == 100


def test_the_share_of_padding_can_be_told_before_training():
    pieces = chorales(np.random.default_rng(1).integers(10, 90, 150).tolist())
    for length in (64, 192, 320):
        config = settings(length=length, context=0, augmentation=Augmentation(transpose=0))
        loader = training_loader(pieces, config, seed=0)
        told = padding_share(
            loader.batches_of(0), crop_lengths(pieces, config, torch.Generator().manual_seed(0))
        )
        batches = list(loader)
        room = sum(batch.values.numel() for batch in batches)
        share = sum(int((batch.values == PADDING).sum()) for batch in batches) / room
        assert share == pytest.approx(told, abs=0.02)
        assert told > 0.03
