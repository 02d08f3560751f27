"""A GPU whose memory is full ends a command in one sentence that names what to lower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from triptych.core.models.encoder_decoder import EncoderDecoder
from triptych.domains.image.model import ImageTransformer
from triptych.domains.image.task import ImageTrainingModule
from triptych.domains.music.task import MusicTrainingModule
from triptych.domains.translation.task import TranslationTrainingModule


def full(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


SIZES = {
    "image": (ImageTrainingModule, "data.batch_size and data.evaluation_batch_size"),
    "music": (MusicTrainingModule, "data.batch_size"),
    "translation": (TranslationTrainingModule, "data.max_tokens"),
}


@pytest.mark.parametrize("method", ["training_loss", "score"])
@pytest.mark.parametrize("domain", SIZES)
def test_training_names_the_size_of_a_batch_and_leaves_no_folder(
    domain: str,
    method: str,
    cli: Any,
    tiny_settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, size = SIZES[domain]
    monkeypatch.setattr(task, method, full)
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(tiny_settings(domain)), encoding="utf-8")
    answer = cli("train", domain, "--config", path)
    assert answer.code == 2, answer.err
    sentence = answer.err.splitlines()[-1]
    for part in (size, "trainer.accumulate_grad_batches", "activation_checkpointing"):
        assert part in sentence, sentence
    assert not (tmp_path / "runs/run").exists(), "the same command would be refused"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "image"], ["--batch_size"]),
        (["sample", "image", "--out", "out"], ["--count"]),
        (["attention", "image", "--out", "out"], ["--device cpu"]),
    ],
)
def test_commands_on_images(
    arguments: list[str],
    says: list[str],
    cli: Any,
    image_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("nll", "sample"):
        monkeypatch.setattr(ImageTransformer, name, full)
    answer = cli(*arguments, "--checkpoint", image_checkpoint)
    assert answer.code == 2
    sentence = answer.err.splitlines()[-1]
    assert sentence.startswith("triptych: ")
    assert all(part in sentence for part in says), sentence


def test_translation(
    cli: Any, translation_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncoderDecoder, "init_state", full)
    answer = cli("translate", "--checkpoint", translation_checkpoint, stdin=b"one\n")
    assert answer.code == 2
    assert "--batch_size" in answer.err.splitlines()[-1]
