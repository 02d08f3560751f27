import math
from collections import Counter

import numpy as np
import pytest

from triptych.domains.music.metrics import count_models
from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.music.tokenizers.events import EventTokenizer


@pytest.mark.parametrize("kind", [ChoraleTokenizer(), EventTokenizer()])
def test_count_models_are_their_definition(kind):
    """Tables of a voice or of none, the token so many before, and a place in the quarter."""
    random = np.random.default_rng(0)
    train = [random.integers(0, 3, size) for size in (30, 7, 41)]
    held_out = [random.integers(0, 3, size) for size in (25, 18)]
    voice, previous = (lambda t, i: i % 4), (lambda t, i: t[i - 4] if i >= 4 else None)
    chorales = [
        lambda t, i: (voice(t, i), previous(t, i)),
        lambda t, i: (voice(t, i), previous(t, i), i // 4 % 4),
    ]
    events = [lambda t, i: None, lambda t, i: t[i - 1] if i else None]
    size, expected = kind.vocabulary_size, [math.log(kind.vocabulary_size)]
    for context in chorales if isinstance(kind, ChoraleTokenizer) else events:
        seen = Counter((context(t, i), t[i]) for t in train for i in range(len(t)))
        often = Counter(context(t, i) for t in train for i in range(len(t)))
        nats = [
            -math.log((seen[context(t, i), t[i]] + 0.5) / (often[context(t, i)] + size / 2))
            for t in held_out
            for i in range(len(t))
        ]
        expected.append(sum(nats) / len(nats))
    assert list(count_models(kind, train, held_out).values()) == pytest.approx(expected)


def test_the_jsb_figures_are_the_known_ones(shared_data):
    source = JSBChorales(str(shared_data / "jsb-chorales"))
    train, held_out = (
        [
            ChoraleTokenizer().tokens(piece.content)
            for piece in source.load(split, ChoraleTokenizer())
        ]
        for split in ("train", "validation")
    )
    nats = count_models(ChoraleTokenizer(), train, held_out)
    assert [round(value, 3) for value in nats.values()] == [3.85, 0.938, 0.729]
