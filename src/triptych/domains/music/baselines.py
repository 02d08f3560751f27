"""Models that count: the ladder that stands beside a trained model's nats per token.

Each is a table of how often a token followed a context in the training pieces, with one half added
to every count (Krichevsky and Trofimov's estimate), scored on held-out pieces. On the validation
split of the JSB chorales the voice with its previous pitch gives 0.938 nats a token, with the
position in the beat 0.729 (with one added, as is also common, 0.944 and 0.756).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from triptych.domains.music.chorales import N_VOICES, STEPS_PER_QUARTER
from triptych.domains.music.representation import ChoraleGrid, Ids, Representation

ADDED = 0.5
"""What every count begins with."""

Contexts = dict[str, tuple[NDArray[np.int64], int]]
"""Name of a model -> (number of the context of each token, how many contexts there are)."""


def ladder(
    representation: Representation, train: list[Ids], held_out: list[Ids]
) -> dict[str, float]:
    """Nats per token of the uniform model and of ever better count models, by name."""
    size = representation.vocabulary_size
    contexts = _chorale_contexts if isinstance(representation, ChoraleGrid) else _event_contexts
    nothing = contexts(np.zeros(0, dtype=np.int64), size)
    counts = {name: np.zeros(n * size, dtype=np.int64) for name, (_, n) in nothing.items()}
    for tokens in train:
        for name, (context, _) in contexts(tokens, size).items():
            np.add.at(counts[name], context * size + tokens, 1)
    nats = dict.fromkeys(counts, 0.0)
    for tokens in held_out:
        for name, (context, n_contexts) in contexts(tokens, size).items():
            smooth = counts[name].reshape(n_contexts, size) + ADDED
            probability = smooth[context, tokens] / smooth.sum(1)[context]
            nats[name] -= float(np.log(probability).sum())
    n_tokens = sum(len(tokens) for tokens in held_out)
    return {"uniform": math.log(size)} | {name: sum_ / n_tokens for name, sum_ in nats.items()}


def _chorale_contexts(tokens: Ids, size: int) -> Contexts:
    place = np.arange(len(tokens))
    voice = place % N_VOICES
    # The voice's own pitch a 16th before; `size` stands for the beginning.
    before = np.concatenate([np.full(N_VOICES, size), tokens])[: len(tokens)]
    own = voice * (size + 1) + before
    n_own = N_VOICES * (size + 1)
    beat = place // N_VOICES % STEPS_PER_QUARTER
    return {
        "voice and previous pitch": (own, n_own),
        "voice, previous pitch and 16th in the quarter": (
            own * STEPS_PER_QUARTER + beat,
            n_own * STEPS_PER_QUARTER,
        ),
    }


def _event_contexts(tokens: Ids, size: int) -> Contexts:
    before = np.concatenate([[size], tokens])[: len(tokens)]
    return {
        "frequency of the event": (np.zeros_like(tokens), 1),
        "previous event": (before, size + 1),
    }
