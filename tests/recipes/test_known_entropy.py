"""The recipes rows and motifs: the sources of the library read what was drawn, of known entropy."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from noisy_sources import CopiedMotifs, CopiedRows

from triptych.domains.music.sources.chorales import JSBChorales
from triptych.domains.music.tokenizers.chorales import ChoraleTokenizer
from triptych.domains.pictures.sources import MNIST
from triptych.tools import recipes

SIZES = {"train_size": 30, "validation_size": 8, "test_size": 5, "seed": 3}
rows, motifs = recipes.load("rows"), recipes.load("motifs")


def words(**options: object) -> list[str]:
    return [str(word) for name, value in options.items() for word in (f"--{name}", value)]


def test_images_are_read_as_they_were_drawn(tmp_path: Path) -> None:
    recipes.make("rows", [*words(**SIZES), "--out", str(tmp_path / "rows")])
    source = MNIST(directory=str(tmp_path / "rows"), validation_size=8)
    drawn = CopiedRows(**SIZES)
    read = {split: source.load(split).quantize(3) for split in ("train", "validation", "test")}
    assert (read["test"].pixels == drawn.load("test").pixels).all()
    assert read["test"].levels == drawn.levels == 8
    found, wanted = (
        Counter(bytes(image.numpy()) for split in ("train", "validation") for image in of(split))
        for of in (lambda s: read[s].pixels, lambda s: drawn.load(s).pixels)
    )
    assert found == wanted
    entropy = float((tmp_path / "rows/entropy.txt").read_text())
    assert entropy == pytest.approx(drawn.entropy(), abs=1e-6)
    with pytest.raises(ValueError, match="expected 1 to 7"):
        rows.Options(bits=8)


def test_pieces_are_read_as_they_were_drawn(tmp_path: Path) -> None:
    recipes.make("motifs", [*words(**SIZES), "--out", str(tmp_path / "motifs")])
    source, drawn = JSBChorales(directory=str(tmp_path / "motifs")), CopiedMotifs(**SIZES)
    for split in ("train", "validation", "test"):
        found, wanted = (each.load(split, ChoraleTokenizer()) for each in (source, drawn))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert np.array_equal(one.content, other.content)
    entropy = float((tmp_path / "motifs/entropy.txt").read_text())
    assert entropy == pytest.approx(drawn.entropy(), abs=1e-6)
    assert entropy < math.log(8)
    with pytest.raises(ValueError, match="from 2 to 8"):
        motifs.Options(notes=1)
