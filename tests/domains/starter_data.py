"""Small folders of a user's data: pictures, MIDI files, sentence pairs."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pretty_midi
from numpy.typing import NDArray
from PIL import Image


def write_pictures(folder: Path, count: int = 50, *, mode: str = "RGB", classes: int = 0) -> Path:
    """Write pictures of a few sizes, in sub-folders where classes are asked for."""
    drawn = random.Random(0)
    for number in range(count):
        place = folder / f"class{number % classes}" if classes else folder
        place.mkdir(parents=True, exist_ok=True)
        width, height = drawn.choice([(48, 40), (64, 48), (40, 40)])
        pixels = np.full((height, width, 3), number * 5 % 256, dtype=np.uint8)
        pixels[height // 4 : height // 2, width // 4 : width // 2] = drawn.randrange(256)
        ending = "png" if number % 2 else "jpg"
        Image.fromarray(pixels).convert(mode).save(place / f"{number:02}.{ending}")
    return folder


def write_images(
    folder: Path, count: int, shape: tuple[int, ...], *, seed: int = 0
) -> list[NDArray[np.uint8]]:
    """Write images of random pixels [H, W, 3] or [H, W] as PNG files, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(seed)
    images = [drawn.integers(0, 256, shape, dtype=np.uint8) for _ in range(count)]
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / f"{number:03}.png")
    return images


def write_music(
    folder: Path, count: int = 20, *, programs: tuple[int, ...] = (0,), notes: int = 40
) -> Path:
    """Write pieces in which every program plays the same number of notes."""
    folder.mkdir(parents=True)
    drawn = random.Random(0)
    for number in range(count):
        midi = pretty_midi.PrettyMIDI()
        for program in programs:
            instrument, onset = pretty_midi.Instrument(program), 0.0
            for _ in range(notes):
                pitch, length = drawn.choice([60, 62, 64, 65, 67]), drawn.choice([0.25, 0.5])
                instrument.notes.append(pretty_midi.Note(70, pitch, onset, onset + length))
                onset += length
            midi.instruments.append(instrument)
        midi.write(str(folder / f"piece{number:02}.mid"))
    return folder


WORDS = {
    "fr": ["le", "la", "chat", "chien", "mange", "dort", "petit", "grand", "rouge", "jour", "nuit"],
    "en": ["the", "a", "cat", "dog", "eats", "sleeps", "small", "big", "red", "day", "night"],
    "ko": ["그", "고양이", "개", "먹는다", "잔다", "작은", "큰", "집", "빨간", "낮", "밤"],
}


def sentences(language: str, count: int, seed: int = 0) -> list[str]:
    """Return different lines in a language; line n has as many words in every language."""
    drawn = random.Random(seed)
    return [
        " ".join(WORDS[language][drawn.randrange(11)] for _ in range(drawn.randrange(3, 9)))
        for _ in range(count)
    ]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
