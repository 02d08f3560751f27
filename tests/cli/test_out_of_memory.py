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
    ("arguments", "owner", "method", "says"),
    [
        (["evaluate", "image"], ImageTransformer, "nll", "--batch_size"),
        (["sample", "image", "--out", "out"], ImageTransformer, "sample", "--count"),
        (["attention", "image", "--out", "out"], ImageTransformer, "sample", "--device cpu"),
        (["translate"], EncoderDecoder, "init_state", "--batch_size"),
    ],
)
def test_a_command_names_what_makes_it_smaller(
    arguments: list[str], owner: type, method: str, says: str, cli: Any,
    checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(owner, method, full)
    checkpoint = checkpoints["image" if owner is ImageTransformer else "translation"]
    answer = cli(*arguments, "--checkpoint", checkpoint, stdin=b"one\n")
    assert answer.code == 2
    sentence = answer.err.splitlines()[-1]
    assert sentence.startswith("triptych: ")
    assert says in sentence, sentence
