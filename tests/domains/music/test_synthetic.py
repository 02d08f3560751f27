"""Pieces of known entropy: the law against enumeration, the draws, a model that knows it."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from noisy_sources import CopiedMotifs
from pretty import pretty
from tiny_music import tiny_model
from torch import nn

from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer

CHORALES = ChoraleTokenizer()
TINY = CopiedMotifs(
    motif_steps=2,
    repeats=3,
    notes=2,
    change=0.2,
    train_size=6,
    validation_size=60,
    test_size=5,
    seed=3,
)


def probability(grid, source):
    """By the sentence in the docstring, note by note."""
    found = 1.0
    for step, notes in enumerate(grid):
        for voice, note in enumerate(notes):
            if step < source.motif_steps:
                found *= 1 / source.notes
            elif note == grid[step - source.motif_steps][voice]:
                found *= 1 - source.change
            else:
                found *= source.change / (source.notes - 1)
    return found


def test_entropy_is_that_of_all_pieces():
    # One 16th three times in four voices that know nothing of each other: 3**3 lines each.
    source = replace(TINY, motif_steps=1, notes=3)
    every = [
        probability([[a], [b], [c]], source) for a, b, c in itertools.product(range(3), repeat=3)
    ]
    assert sum(every) == pytest.approx(1)
    assert source.entropy() == pytest.approx(-sum(p * math.log(p) for p in every) / 3, rel=1e-12)


def law_nats(split, limit=None):
    """The true nats of the pieces."""
    pieces = TINY.load(split, CHORALES)[:limit]
    return -sum(math.log(probability(piece.content.tolist(), TINY)) for piece in pieces)


def test_the_draw_follows_the_law():
    source = CopiedMotifs(motif_steps=2, repeats=5, notes=4, change=0.25, train_size=2000)
    grids = np.stack([piece.content for piece in source.load("train", CHORALES)])
    assert grids.shape == (2000, 10, 4)
    place = np.stack(
        [np.searchsorted(np.unique(grids[..., v]), grids[..., v]) for v in range(4)], axis=-1
    )
    assert place.max() == 3, "each voice has four notes"

    def close(found, share):
        return abs(found.mean() - share) < 4 * math.sqrt(share * (1 - share) / found.size)

    step = (place[:, 2:] - place[:, :-2]) % 4
    for note in range(4):
        assert close(place[:, :2] == note, 0.25)
        assert close(step == note, 0.75 if note == 0 else 0.25 / 3)
    assert close(place[:, 0] == place[:, 1], 0.25)
    assert close((step[:, 2:] != 0) & (step[:, :-2] != 0), 0.25**2)


def test_every_voice_can_be_sung_and_played():
    pieces = CopiedMotifs(train_size=50).load("train", CHORALES)
    for piece in pieces:
        ids = CHORALES.encode(piece.content)  # refuses what has no symbol
        assert ids.shape == (128,)
    midi = pretty(CHORALES.to_score(ids))
    assert [len(part.notes) > 0 for part in midi.instruments] == [True] * 4


class Perfect(nn.Module):
    """A model that knows the law of TINY, whose motif is 8 tokens long."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))  # gives the device

    def nll(self, values, *, previous, condition):
        copied = torch.where(values[:, 8:] == values[:, :-8], -math.log(0.8), -math.log(0.2))
        first = torch.full((len(values), 8), math.log(2))
        return torch.cat([first, copied], 1)  # [B, L]


def test_a_perfect_model_scores_what_the_law_scores():
    model = tiny_model(TINY, length=64, tokenizer=CHORALES)
    model.model = Perfect()
    for limit in (None, 3):
        found = model.evaluate("test", limit=limit)
        expected = law_nats("test", limit) / found.details["tokens"]
        assert found.metrics["nats_per_token"] == pytest.approx(expected, rel=1e-6)
