"""The JSB chorales in their public file of sixteenths."""

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from triptych.domains.music.sources.base import Piece, PieceSource, Split, require_pieces
from triptych.domains.music.tokenizers.chorales import (
    HIGHEST,
    LOWEST,
    N_VOICES,
    ChoraleTokenizer,
    Grid,
    in_range,
)
from triptych.errors import UserError

FILE = "Jsb16thSeparated.json.gz"
SPLIT_NAMES: dict[Split, str] = {"train": "train", "validation": "valid", "test": "test"}
"""Names of the splits in the file."""


@dataclass(frozen=True)
class JSBChorales(PieceSource):
    """The JSB chorales in the split of Boulanger-Lewandowski (2012): 229, 76 and 77 pieces."""

    directory: str
    """Folder with Jsb16thSeparated.json.gz."""

    tokenizer: ClassVar[ChoraleTokenizer] = ChoraleTokenizer()

    def load(self, split: Split) -> list[Piece]:
        """Read one split of the file."""
        path = Path(self.directory).expanduser() / FILE
        if not path.is_file():
            raise UserError(f"JSBChorales directory: {path} does not exist")
        grids = read_jsb(path)[split]
        pieces = [Piece(f"jsb-{split}-{number:03d}", grid) for number, grid in enumerate(grids)]
        return require_pieces(pieces, split, str(path))


def read_jsb(path: Path) -> dict[Split, list[Grid]]:
    """Read the splits of the file, each with its pieces in the order of the file.

    The file holds, by split, a list of pieces: lists of steps of four pitches, -1 for a rest.
    Raises UserError for any other content.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            content = json.load(file)
        splits = {
            split: [np.array(piece, dtype=np.int64) for piece in content[name]]
            for split, name in SPLIT_NAMES.items()
        }
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, TypeError, zlib.error) as error:
        raise UserError(
            f"{path} is not the JSB file of 16ths in separate voices ({error!r})"
        ) from error
    for split, grids in splits.items():
        for number, grid in enumerate(grids):
            if grid.ndim != 2 or grid.shape[1] != N_VOICES or not in_range(grid):
                raise UserError(
                    f"{path}: piece {number} of {split} is not a list of steps of four pitches "
                    f"from {LOWEST} to {HIGHEST} or -1"
                )
    return splits
