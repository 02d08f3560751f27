"""Chorales as grids: the JSB chorales in their public file."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from triptych.domains.music.sources.base import Piece, PieceSource
from triptych.domains.music.tokenizers.base import MusicTokenizer
from triptych.domains.music.tokenizers.chorales import (
    ChoraleTokenizer,
    Grid,
)
from triptych.errors import UserError
from triptych.files.lines import read_content

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
    Raises UserError for any other content, and as `read_content`.
    """
    try:
        pieces = json.loads(read_content(path))["valid" if split == "validation" else split]
        grids = [np.array(piece, dtype=np.int64) for piece in pieces]
        for grid in grids:
            ChoraleTokenizer().encode(grid)  # refuses what is not four pitches in each step
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not the JSB file of 16ths in separate voices ({error!r})"
        ) from error
    return grids
