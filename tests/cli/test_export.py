"""`triptych export`: a trained model on the command line, and its refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from export_cases import TEXTS

NAMES = {"config.json", "model.safetensors", "README.md"}


def test_an_exported_model_is_a_checkpoint(
    cli, refused, tmp_path: Path, translation_checkpoint: Path
) -> None:
    command = ["export", translation_checkpoint, "--format", "safetensors", "--out", "out"]
    texts = [f"{key}={text}" for key, text in TEXTS.items()]
    answer = cli(*command, "--card", *texts)
    assert answer.code == 0, answer.err
    assert "are equal to those of the model" in answer.err
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} >= NAMES | {"tokenizer.json"}
    card = (out / "README.md").read_text()
    assert all(text in card for text in TEXTS.values())
    translated = [
        cli("translate", "--checkpoint", source, "--device", "cpu", stdin=b"one\ntwo\n")
        for source in ("out", translation_checkpoint)
    ]
    assert translated[0].code == 0, translated[0].err
    assert translated[0].out == translated[1].out
    refused(*command, says=["--out out already holds", "--overwrite"])
    assert cli(*command, "--overwrite").code == 0
    refused("sample", "image", "--checkpoint", "out", "--out", "a", says=["domain translation"])
    (out / "model.safetensors").unlink()
    refused("translate", "--checkpoint", "out", says=["out is a folder without model.safetensors"])


def test_what_export_refuses(refused, image_checkpoint: Path) -> None:
    start = ["export", image_checkpoint, "--out", "out", "--format"]
    for words, says in [
        (["onyx"], ["got onyx", "safetensors"]),
        (["safetensors", "--card", "terms"], ["--card has 'terms' without a text"]),
        (["safetensors", "--card", "licence=MIT"], ["--card has no text licence", "terms"]),
        (["hf"], ["no architecture of transformers computes the ImageTransformer"]),
    ]:
        refused(*start, *words, says=says)
    refused("export", "none.ckpt", "--format", "hf", "--out", "out", says=["none.ckpt does not"])
    refused("export", image_checkpoint, "--format", "hf", says=["required: out"])


def test_a_package_that_is_missing(
    refused, image_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    says = ["--format onnx needs onnx", "pip install 'triptych[export]'"]
    refused("export", image_checkpoint, "--format", "onnx", "--out", "out", says=says)


def test_the_metadata_are_those_of_the_checkpoint(
    cli, tmp_path: Path, image_checkpoint: Path
) -> None:
    command = ["export", image_checkpoint, "--format", "safetensors", "--out", "out"]
    assert cli(*command).code == 0
    facts = json.loads((tmp_path / "out/config.json").read_text())
    assert facts["triptych"]["step"] == 3
    assert "not recorded in the checkpoint" in (tmp_path / "out/README.md").read_text()
