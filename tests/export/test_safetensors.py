"""A safetensors folder is the model: opened again, bit by bit, or refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import triptych
from triptych.errors import UserError
from triptych.tools.export import safetensors
from triptych.tools.export.original import Original, open_original
from triptych.training.run.checkpoint import FORMAT, read_checkpoint

MODELS: dict[str, Callable[[], Original]] = {
    "translation": tiny_models.translator,
    "language": tiny_models.language_model,
    "image": tiny_models.image_model,
    "music": tiny_models.music_model,
    "gan": tiny_models.gan_model,
    "vision": tiny_models.vision_model,
}
MISFIT = "is no checkpoint, cut off or damaged"
WEIGHT = "model.encoder.blocks.0.feed_forward.fc1.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    safetensors.write(tiny_models.translator(), folder)
    return folder


@pytest.mark.parametrize("domain", MODELS)
def test_a_model_of_each_domain_comes_back(domain: str, tmp_path: Path) -> None:
    source = MODELS[domain]()
    safetensors.write(source, tmp_path)
    opened = triptych.load(tmp_path, device="cpu")
    assert opened.settings == source.model.settings
    before, after = (model.full_model.state_dict() for model in (source.model, opened))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) >= source.parameters
    again = open_original(str(tmp_path), tmp_path, {"terms": "none"})
    assert again.card == {**source.card, "terms": "none"}
    assert (again.name, again.metrics) == (source.name, source.metrics)


@pytest.mark.parametrize("shared", [True, False])
def test_the_tokenizer_file_has_the_ids_of_the_model(tmp_path: Path, shared: bool) -> None:
    source = tiny_models.translator(shared=shared, share_embeddings="all" if shared else "none")
    safetensors.write(source, tmp_path)
    sides = {"tokenizer.json": source.model.vocabulary.source}
    if not shared:
        sides["target_tokenizer.json"] = source.model.vocabulary.target
    for name, own in sides.items():
        tokenizer = Tokenizer.from_file(str(tmp_path / name))
        for text in (*tiny_models.LINES, "the Zebra, ünknown — 例"):
            ids = tokenizer.encode(text).ids
            assert ids == [*own.encode(text), 2]
            assert tokenizer.decode(ids) == own.decode(ids) == text
        assert tokenizer.get_vocab_size() == len(own)


def test_the_tokenizer_of_a_language_model_begins_a_text(tmp_path: Path) -> None:
    source = tiny_models.language_model()
    safetensors.write(source, tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    own = source.model.vocabulary.tokenizer
    assert tokenizer.encode("a man").ids == [1, *own.encode("a man")]


def change(folder: Path, **values: Any) -> None:
    """Change values of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "is a folder without model.safetensors"),
        (lambda f: (f / "config.json").unlink(), "is a folder without config.json"),
        (lambda f: flip_a_bit(f / "model.safetensors"), "damaged or were changed: their sha256"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is missing or damaged"),
        (lambda f: (f / "config.json").write_text('{"a": "llama"}'), "not written by Triptych"),
        (lambda f: change(f, format=2), "has format 2"),
        (lambda f: change(f, triptych={"format": FORMAT}), "its header has no"),
        (lambda f: change(f, sha256=None), MISFIT),
        (lambda f: change(f, tied=[1]), MISFIT),
        (lambda f: change(f, tied={WEIGHT: "model.nothing"}), MISFIT),
        (lambda f: change(f, stored_as=[1]), MISFIT),
        (lambda f: change(f, stored_as={WEIGHT: {"names": ["model.nothing"]}}), MISFIT),
        (lambda f: change(f, stored_as={WEIGHT: {"names": [WEIGHT], "row": 99_999}}), MISFIT),
        (lambda f: change(f, stored_as={WEIGHT: {"names": [WEIGHT], "heads": 7}}), MISFIT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_or_foreign_folder_is_refused(
    folder: Path, damage: Callable[[Path], Any], says: str
) -> None:
    damage(folder)
    with pytest.raises(UserError, match=says) as error:
        read_checkpoint(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_of_another_model_than_the_settings_are_refused(folder: Path) -> None:
    change(folder, stored_as={WEIGHT: {"names": [WEIGHT]}}, tied={})
    with pytest.raises(UserError, match=r"are not of the model of its settings: Missing key"):
        triptych.load(str(folder), device="cpu")


def test_weights_that_come_back_otherwise_are_no_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = safetensors.from_safetensors

    def wrong(*arguments: Any, **options: Any) -> dict[str, Any]:
        opened = read(*arguments, **options)
        next(iter(opened["state_dict"].values()))[0] += 1
        return opened

    monkeypatch.setattr(safetensors, "from_safetensors", wrong)
    with pytest.raises(RuntimeError, match="other weights"):
        safetensors.write(tiny_models.image_model(), tmp_path)


def test_paths_of_the_machine_stay_there(tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt"
    source = tiny_models.music_model()
    content = json.loads(json.dumps(source.header))
    content["data"]["source"]["init_args"]["directory"] = "/elsewhere/music/jsb"
    content["run"]["directory"] = "/scratch/runs"
    state = {f"model.{k}": v for k, v in source.model.full_model.state_dict().items()}
    torch.save({"triptych": content, "state_dict": state}, path)
    out = tmp_path / "out"
    out.mkdir()
    safetensors.write(open_original(str(path), path, {}), out)
    text = (out / "config.json").read_text()
    assert "/home" not in text
    assert "/scratch" not in text
    assert '"directory": "jsb"' in text
