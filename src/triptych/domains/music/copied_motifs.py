"""Pieces of known entropy: a random motif in four voices, repeated with mistakes."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from triptych.domains.music.chorales import HIGHEST, LOWEST, N_VOICES
from triptych.domains.music.representation import ChoraleGrid, Piece, Representation
from triptych.domains.music.sources import PieceSource, Split
from triptych.training.known_law import KnownLaw, NoisyCopy, Numbers, chances

SCALE = np.array([p for p in range(LOWEST, HIGHEST + 1) if p % 12 in (0, 2, 4, 7, 9)])
"""C, D, E, G and A of all octaves: whatever sounds together, sounds well."""
FIRST_NOTE = np.array([12, 8, 4, 0])
"""Where in the scale the notes of soprano, alto, tenor and bass begin."""
MOST_NOTES = len(SCALE) - int(FIRST_NOTE.max())


@dataclass(frozen=True)
class CopiedMotifs(PieceSource, KnownLaw):
    """Chorale grids that repeat a random motif, each time with a few other notes than the last.

    The law: each voice draws each 16th of the motif from its own `notes` notes, each as likely. In
    each repeat a 16th of a voice has the note of one motif before with probability 1 - change, else
    one of the voice's others, each as likely. With R times the motif in a piece a token has
    (ln notes + (R - 1) h) / R nats, h = -(1 - change) ln(1 - change) - change ln(change / (notes -
    1)). It is the law of unvaried pieces: train without transposition.
    """

    motif_steps: int = 4
    """Length of the motif, in 16ths."""
    repeats: int = 8
    """How often the motif stands in a piece, the first time included."""
    notes: int = 8
    """Notes that each voice chooses from, 2 to 8 neighbours of a pentatonic scale."""
    change: float = 0.03
    """Probability that a 16th of a voice differs from one motif before, above 0 and below 1."""
    train: int = 4_000
    """Pieces to train on."""
    validation: int = 200
    """Pieces that are scored while training."""
    test: int = 400
    """Pieces for the end."""
    seed: int = 0
    """Seed of the draw; each split has its own random numbers."""

    representation: ClassVar[Representation] = ChoraleGrid()

    def __post_init__(self) -> None:
        if min(self.motif_steps, self.repeats) < 1:
            raise ValueError(
                f"motif_steps {self.motif_steps} and repeats {self.repeats} must be at least 1"
            )
        if not 2 <= self.notes <= MOST_NOTES:
            raise ValueError(f"notes must be from 2 to {MOST_NOTES}, got {self.notes}")
        if min(self.train, self.validation, self.test) < 1:
            raise ValueError("train, validation and test must each be at least one piece")
        self._copy()

    def _copy(self) -> NoisyCopy:
        return NoisyCopy(self.notes, self.change)

    def load(self, split: Split) -> list[Piece]:
        """Draw one split; the same one every time."""
        grids = self._grids(split)
        return [Piece(f"motif-{split}-{number:04d}", grid) for number, grid in enumerate(grids)]

    def _grids(self, split: str) -> Numbers:
        count = {"train": self.train, "validation": self.validation, "test": self.test}[split]
        drawn = chances(self.seed, split, (count, self.repeats, self.motif_steps, N_VOICES))
        motifs = [(drawn[:, 0] * self.notes).astype(np.int64)]
        for repeat in range(1, self.repeats):
            motifs.append(self._copy().apply(motifs[-1], drawn[:, repeat]))
        notes = np.concatenate(motifs, axis=1)  # [N, T, 4]
        return SCALE[FIRST_NOTE + notes]

    def entropy(self) -> float:
        """Nats per token of the law."""
        return (math.log(self.notes) + (self.repeats - 1) * self._copy().entropy()) / self.repeats

    def nll(self, split: str, limit: int | None = None) -> float:
        """The law's own nats of the split, or of its first pieces."""
        grids = self._grids(split)[:limit]
        changed = int((grids[:, self.motif_steps :] != grids[:, : -self.motif_steps]).sum())
        first = grids[:, : self.motif_steps].size
        copied = grids.size - first - changed
        return first * math.log(self.notes) + self._copy().nll(copied, changed)
