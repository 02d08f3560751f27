"""A small text of sentences, its vocabulary, and tiny models."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.language.model import SPECIALS, ModelConfig, Vocabulary
from triptych.domains.language.sources import TextFiles
from triptych.text.word_piece import WordPiece

WORDS = ["the dog", "a cat", "my horse", "the red bird", "one fish"]
VERBS = ["sees", "likes", "follows", "hears"]


def write_text(path: Path, *, documents: int, seed: int) -> None:
    """Documents of two to six sentences, with blank lines between them."""
    draw = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(documents):
            for _ in range(draw.randint(2, 6)):
                who, whom = draw.choice(WORDS), draw.choice(WORDS)
                file.write(f"{who.capitalize()} {draw.choice(VERBS)} {whom}.\n")
            file.write("\n")


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextFiles:
    folder = tmp_path_factory.mktemp("text")
    files = {}
    for seed, split in enumerate(("train", "validation", "test")):
        write_text(folder / f"{split}.txt", documents=40, seed=seed)
        files[split] = [f"{split}.txt"]
    return TextFiles(directory=str(folder), files=files)


@pytest.fixture(scope="session")
def vocabulary(text: TextFiles) -> Vocabulary:
    lines = [line for document in text.items("train") for line in document]
    return Vocabulary(WordPiece().build(lines, 60, SPECIALS))


@pytest.fixture
def model_config() -> ModelConfig:
    return ModelConfig(
        TransformerConfig(n_layers=1, d_model=16, n_heads=2, dropout=0.0, feed_forward=GELU(16))
    )
