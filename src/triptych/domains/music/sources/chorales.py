"""Chorales as grids: the JSB chorales in their public file, and synthetic ones of known entropy."""

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import (
    HIGHEST,
    LOWEST,
    ChoraleTokenizer,
    Grid,
)
from triptych.domains.music.tokenizers.voices import N_VOICES
from triptych.domains.synthetic import NoisyCopy, SyntheticSource, uniform_draws
from triptych.errors import UserError
from triptych.types import OpenUnitInterval, PositiveInt, Seed

FILES = ("Jsb16thSeparated.json.gz", "Jsb16thSeparated.json")


@dataclass(frozen=True)
class JSBChorales(PieceSource):
    """The JSB chorales in the split of Boulanger-Lewandowski (2012): 229, 76 and 77 pieces."""

    directory: str
    """Folder with Jsb16thSeparated.json, plain or .gz."""

    content = ChoraleTokenizer.content

    def reads(self, folder: Path) -> bool:
        return any((folder.expanduser() / name).is_file() for name in FILES)

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        folder = Path(self.directory).expanduser()
        path = next((folder / name for name in FILES if (folder / name).is_file()), None)
        if path is None:
            raise UserError(f"JSBChorales directory: {folder / FILES[0]} does not exist")
        grids = read_jsb(path, split)
        return [Piece(f"jsb-{split}-{number:03d}", grid) for number, grid in enumerate(grids)]


def read_jsb(path: Path, split: str) -> list[Grid]:
    """Read the pieces of a split in the order of the file.

    The file holds, by split, a list of pieces: lists of steps of four pitches, -1 for a rest.
    Raises UserError for any other content.
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            pieces = json.load(file)["valid" if split == "validation" else split]
        grids = [np.array(piece, dtype=np.int64) for piece in pieces]
        for grid in grids:
            ChoraleTokenizer().encode(grid)  # refuses what is not four pitches in each step
    except (OSError, ValueError, EOFError, KeyError, TypeError, zlib.error) as error:
        raise UserError(
            f"{path} is not the JSB file of 16ths in separate voices ({error!r})"
        ) from error
    return grids


SCALE = np.array([p for p in range(LOWEST, HIGHEST + 1) if p % 12 in (0, 2, 4, 7, 9)])
"""MIDI pitches C, D, E, G and A of all octaves, a scale without dissonances."""
FIRST_NOTE = np.array([12, 8, 4, 0])
"""Index in SCALE of the lowest pitch of soprano, alto, tenor and bass."""
MAX_NOTES = len(SCALE) - int(FIRST_NOTE.max())


@dataclass(frozen=True)
class CopiedMotifs(PieceSource, SyntheticSource):
    """Chorales that repeat a random motif; each repeat changes a few pitches of the one before.

    Each voice draws each sixteenth of the motif uniformly from its own `notes` pitches. In each
    repeat, a sixteenth of a voice keeps its pitch with probability 1 - change and otherwise takes
    one of the voice's other pitches uniformly. With the motif R times in a piece, the entropy is
    (ln notes + (R - 1) h) / R nats per token, with
    h = -(1 - change) ln(1 - change) - change ln(change / (notes - 1)). Transposed pieces have
    another entropy: train without transposition.
    """

    motif_steps: PositiveInt = 4
    """Length of the motif, in sixteenths."""
    repeats: PositiveInt = 8
    """Number of times that a piece plays the motif, the first time included."""
    notes: int = 8
    """Pitches per voice, 2 to 8 neighbours of a pentatonic scale."""
    change: OpenUnitInterval = 0.03
    """Probability that a sixteenth differs from the one a motif before, above 0 and below 1."""
    train_size: PositiveInt = 4_000
    """Number of training pieces."""
    validation_size: PositiveInt = 200
    """Number of validation pieces."""
    test_size: PositiveInt = 400
    """Number of test pieces."""
    seed: Seed = 0
    """Seed of the pieces; each split has its own random numbers."""

    content = ChoraleTokenizer.content

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.notes <= MAX_NOTES:
            raise ValueError(f"notes must be from 2 to {MAX_NOTES}, got {self.notes}")

    def _copy(self) -> NoisyCopy:
        return NoisyCopy(self.notes, self.change)

    def stream(self, split: str, tokenizer: MusicTokenizer) -> list[Piece]:
        count = getattr(self, f"{split}_size")
        shape = (count, self.repeats, self.motif_steps, N_VOICES)
        drawn = uniform_draws(self.seed, split, shape)
        notes = self._copy().chain(drawn).reshape(count, -1, N_VOICES)  # [N, T, 4]
        grids = SCALE[FIRST_NOTE + notes]
        return [Piece(f"motif-{split}-{number:04d}", grid) for number, grid in enumerate(grids)]

    def entropy(self) -> float:
        return self._copy().chain_entropy(self.repeats)
