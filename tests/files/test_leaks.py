"""Held-out items that are training items too: counted, and named by every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych.core.layers import GELU
from triptych.core.transformer import TransformerConfig
from triptych.domains.language import config as language
from triptych.domains.language import task as language_task
from triptych.domains.language.inference import LanguageModel
from triptych.domains.language.sources import TextFiles
from triptych.domains.language.tasks.next_token import NextToken
from triptych.domains.translation import config as translation
from triptych.domains.translation import task as translation_task
from triptych.domains.translation.inference import TranslationModel
from triptych.domains.translation.sources import ParallelText
from triptych.files.leaks import Digests, find_leaks
from triptych.text.files import normalised


def test_items_are_counted_as_they_are_and_normalised() -> None:
    lines = {
        "train": ["One dog.", "Two  cats.", "ｆull width", "one dog."],
        "validation": ["One dog.", "two\u00a0cats.", "three"],
        "test": ["four", "full width"],
        "clean": ["five"],
    }
    splits = {split: Digests.of(texts, normalised) for split, texts in lines.items()}
    validation, test = find_leaks(splits, "lines")
    assert (validation.size, validation.exact, validation.normalised) == (3, 1, 2)
    assert (test.split, test.exact, test.normalised) == ("test", 0, 1)
    assert "2 of 3 validation lines" in str(validation)
    assert splits["train"].repeated == 1


def test_bytes_have_one_digest() -> None:
    pictures = Digests.of(np.full((2, 2), value, np.uint8).tobytes() for value in (1, 2, 2))
    (leak,) = find_leaks({"train": pictures, "test": pictures}, "images")
    assert (leak.exact, leak.normalised) == (3, 3)
    assert "but for" not in str(leak)


def write(folder: Path, name: str, lines: list[str]) -> str:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


def leaking_text(folder: Path) -> dict[str, str]:
    """Files of 100 training lines, and of 20 lines in which 20 and 15 of them come back."""
    train = [f"Line {number} of text." for number in range(100)]
    test = [line.upper() for line in train[:15]] + [f"new {number}" for number in range(5)]
    splits = {"train": train, "validation": train[:20], "test": test}
    return {split: write(folder, f"{split}.txt", lines) for split, lines in splits.items()}


def prepared_model(folder: Path, domain: str) -> Any:
    """A tiny model of text with leaks, prepared and not trained."""
    sizes = TransformerConfig(n_layers=1, d_model=16, n_heads=2, feed_forward=GELU(16))
    files = leaking_text(folder)
    if domain == "language":
        text = TextFiles(str(folder), {s: [name] for s, name in files.items()}, one_per_line=True)
        config = language.Config(
            data=language.DataConfig(source=text, vocabulary_size=100),
            model=language.ModelConfig(sizes),
            task=NextToken(),
        )
        task, *_ = language_task.prepare(config)
        return LanguageModel.of_run(config, task.model, task.vocabulary)
    for name in files.values():
        (folder / name).rename(folder / f"{name}.en")
        write(folder, f"{name}.de", [str(n) for n, _ in enumerate((folder / f"{name}.en").open())])
    names = {split: [f"{name}.{{language}}"] for split, name in files.items()}
    pairs = ParallelText(directory=str(folder), files=names)
    config = translation.Config(
        data=translation.DataConfig(source=pairs, vocabulary_size=300),
        model=translation.ModelConfig(sizes),
    )
    task, *_ = translation_task.prepare(config)
    return TranslationModel.of_run(config, task.model, task.tokenizers)


@pytest.mark.parametrize("domain", ["language", "translation"])
def test_training_and_evaluation_name_leaks(
    tmp_path: Path, domain: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = prepared_model(tmp_path, domain)
    said = caplog.text
    assert "20 of 20 validation" in said
    assert "15 of 20 test" in said
    assert model.evaluate("test", limit=20).details["leak"]["normalised"] == 15
    assert model.evaluate("validation").details["leak"]["exact"] == 20
    for path in tmp_path.glob("train*"):
        path.unlink()
    assert "leak" not in model.evaluate("test").details, "the training data may be elsewhere"


def test_splits_drawn_by_hash_are_read_with_those_of_training(tmp_path: Path) -> None:
    name = write(tmp_path, "a.txt", [f"line {number}" for number in range(200)])
    source = TextFiles(
        str(tmp_path), {"train": [name]}, one_per_line=True, validation_share=0.2, test_share=0.2
    )
    read = source.read_to_train()
    assert read == {split: source.items(split) for split in source.splits()}
    assert source.leaks(read) == []
