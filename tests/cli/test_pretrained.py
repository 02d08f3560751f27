"""`pretrained:NAME`: listed, opened like any checkpoint, and refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from export_cases import OPTIONS, SCRIPT, TEXTS, rewritten
from safetensors.torch import load_file

import triptych
from triptych import pretrained
from triptych.errors import UserError
from triptych.training.run.checkpoint import read_checkpoint


def round_weights(content: dict[str, Any]) -> None:
    content["state_dict"] = {
        key: value.bfloat16().float() for key, value in content["state_dict"].items()
    }


@pytest.fixture(scope="session")
def exported(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of each domain, named after it."""
    folder = tmp_path_factory.mktemp("pretrained")
    for domain, path in checkpoints.items():
        command = [path, f"tiny-{domain}", "--folder", folder, *OPTIONS]
        assert SCRIPT.main([str(word) for word in command]) == 0
    return folder


@pytest.fixture
def folder(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, where names are looked up in this test."""
    copy = shutil.copytree(exported, tmp_path / "pretrained")
    monkeypatch.setattr(pretrained, "FOLDER", copy)
    return copy


def change_facts(folder: Path, name: str, **changes: Any) -> None:
    path = folder / f"{name}.json"
    facts = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))


DOMAINS = ["image", "music", "translation"]


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_way_there_and_back_rounds_to_bf16_and_does_nothing_else(
    folder: Path, checkpoints: dict[str, Path], domain: str
) -> None:
    before = read_checkpoint(checkpoints[domain])
    after = read_checkpoint(pretrained.find(f"pretrained:tiny-{domain}"))
    assert after["state_dict"].keys() == before["state_dict"].keys()
    changed = 0
    for name, tensor in before["state_dict"].items():
        assert after["state_dict"][name].dtype == tensor.dtype == torch.float32
        torch.testing.assert_close(
            after["state_dict"][name], tensor.to(torch.bfloat16).to(torch.float32), rtol=0, atol=0
        )
        changed += int((after["state_dict"][name] != tensor).sum())
    assert changed > 100
    block = dict(after["triptych"])
    if domain != "image":
        source = block["data"]["source"]["init_args"]
        assert source["directory"] == "../shared/data/nowhere"
        source["directory"] = "/somebody/shared/data/nowhere"
    assert block == before["triptych"]
    assert all(
        t.dtype == torch.bfloat16 for t in load_file(folder / f"tiny-{domain}.safetensors").values()
    )


@pytest.mark.parametrize("domain", DOMAINS)
def test_int8_moves_a_weight_by_half_a_step_of_its_row(
    checkpoints: dict[str, Path], tmp_path: Path, domain: str
) -> None:
    command = [checkpoints[domain], "small", "--int8", "--folder", tmp_path, *OPTIONS]
    assert SCRIPT.main([str(word) for word in command]) == 0
    before = read_checkpoint(checkpoints[domain])["state_dict"]
    after = read_checkpoint(tmp_path / "small.safetensors")["state_dict"]
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        if tensor.ndim < 2:
            assert torch.equal(after[name], tensor.bfloat16().float())
            continue
        for row, rounded in zip(tensor.flatten(0, -2), after[name].flatten(0, -2), strict=True):
            step = float(row.abs().max()) / 127
            torch.testing.assert_close(rounded, row, atol=0.51 * step, rtol=0)
            assert len(rounded.unique()) <= 255
    numbers = [t for t in load_file(tmp_path / "small.safetensors").values() if t.ndim > 1]
    assert {t.dtype for t in numbers if t.shape[-1] > 1} == {torch.int8}
    assert "int8" in (tmp_path / "small.md").read_text()


def test_tied_tensors_are_stored_once_and_come_back_tied(folder: Path) -> None:
    stored = load_file(folder / "tiny-translation.safetensors")
    source, target = (f"model.{side}_embedding.table.weight" for side in ("source", "target"))
    assert source in stored
    assert target not in stored
    state = read_checkpoint(pretrained.find("tiny-translation"))["state_dict"]
    assert state[target].data_ptr() == state[source].data_ptr()
    model = triptych.load("pretrained:tiny-translation", device="cpu").full_model
    assert model.source_embedding.table.weight is model.target_embedding.table.weight
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == sum(tensor.numel() for tensor in stored.values())
    assert json.loads((folder / "tiny-translation.json").read_text())["parameters"] == parameters


def test_translations_and_scores_are_those_of_the_rounded_checkpoint(
    cli, folder: Path, checkpoints: dict[str, Path], translation_checkpoint: Path, tmp_path: Path
) -> None:
    header = read_checkpoint(translation_checkpoint)["triptych"]
    data = header["data"]["source"]["init_args"]["directory"]
    rounded = rewritten(checkpoints["translation"], tmp_path / "rounded.ckpt", round_weights)
    name = "pretrained:tiny-translation"
    texts, scores = [], []
    for source in (name, rounded):
        answer = cli("translate", "--checkpoint", source, "--device", "cpu", stdin=b"one\ntwo\n")
        assert answer.code == 0, answer.err
        texts.append(answer.out)
        command = ["evaluate", "translation", "--checkpoint", source, "--limit", 2, "--data", data]
        assert cli(*command, "--json", tmp_path / "score.json", "--device", "cpu").code == 0
        scores.append(json.loads((tmp_path / "score.json").read_text()))
    assert texts[0] == texts[1]
    assert texts[0].count("\n") == 2
    assert scores[0]["metrics"] == scores[1]["metrics"]
    assert scores[0]["checkpoint"] == {"file": name, "step": 3}


def test_a_file_of_such_a_name_opens_with_a_dot_before_it(
    cli, refused, folder: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copy(checkpoints["translation"], tmp_path / "pretrained:mine")
    for source in ("./pretrained:mine", tmp_path / "pretrained:mine"):
        assert cli("translate", "--checkpoint", source, "--device", "cpu", stdin=b"").code == 0
    assert triptych.load("./pretrained:mine", device="cpu").settings
    assert triptych.load(Path("pretrained:mine"), device="cpu").settings
    refused("translate", "--checkpoint", "pretrained:mine", says=["no pretrained model 'mine'"])


def test_an_unknown_name_is_answered_with_those_there_are(refused, folder: Path) -> None:
    options = ["sample", "image", "--out", "new/folder"]
    for name in ("x", "../x"):
        says = [f"no pretrained model {name!r}", "tiny-image, tiny-music, tiny-translation"]
        refused(*options, "--checkpoint", f"pretrained:{name}", says=says)
    refused(*options, "--checkpoint", "pretrained:tiny-imag", says=["did you mean tiny-image?"])
    with pytest.raises(UserError, match="tiny-image, tiny-music"):
        triptych.load("pretrained:x")
    for path in folder.iterdir():
        path.unlink()
    refused(*options, "--checkpoint", "pretrained:x", says=["none comes with this installation"])


def test_a_name_without_its_prefix(refused, folder: Path) -> None:
    meant = f"{pretrained.PREFIX}tiny-music"
    refused("sample", "music", "--checkpoint", "tiny-music", "--out", "new", says=[meant])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: flip_a_bit(f / "tiny-image.safetensors"), ["safetensors are damaged", "sha256"]),
        (lambda f: cut(f / "tiny-image.json"), ["tiny-image.json is missing or damaged"]),
        (lambda f: change_facts(f, "tiny-image", format=2), ["format 2;", "reads format 1"]),
        (lambda f: change_facts(f, "tiny-image", tied=None), ["cut off or damaged"]),
        (lambda f: change_facts(f, "tiny-image", triptych={}), ["has format None"]),
        (lambda f: (f / "tiny-image.json").unlink(), ["no pretrained model 'tiny-image'"]),
        (lambda f: (f / "tiny-image.safetensors").unlink(), ["No such file or directory"]),
    ],
    ids=["bit", "json", "format", "lacks", "block", "no-json", "no-weights"],
)  # fmt: skip
def test_what_is_damaged_is_told_in_a_sentence(
    refused, folder: Path, change: Callable[[Path], None], says: list[str]
) -> None:
    change(folder)
    command = ["sample", "image", "--checkpoint", "pretrained:tiny-image", "--out", "new"]
    refused(*command, says=says)


def test_training_does_not_go_on_from_one(refused, folder: Path, digits_yaml: Path) -> None:
    words = ["--resume", "pretrained:tiny-image"]
    says = ["pretrained:tiny-image"]
    refused("train", "image", "--config", digits_yaml, *words, says=says)


@pytest.mark.parametrize("words", [["--run.start.init_from", "{}"], ["--run.start.init_from={}"]])
def test_training_can_start_from_one(
    cli, folder: Path, digits_yaml: Path, words: list[str]
) -> None:
    name = "pretrained:tiny-image"
    words = [word.format(name) for word in words]
    answer = cli("train", "image", "--config", digits_yaml, *words)
    assert answer.code == 0, answer.err
    assert f"Starting with the weights of {name}" in answer.out


def test_the_list_and_the_card(cli, refused, folder: Path) -> None:
    answer = cli("pretrained")
    assert (answer.code, answer.err) == (0, "")
    rows = answer.out.splitlines()
    assert [row.split()[:2] for row in rows] == [[f"tiny-{d}", d] for d in DOMAINS]
    size = f"{(folder / 'tiny-image.safetensors').stat().st_size / 1e6:.1f} MB"
    for word in (size, TEXTS["what"], TEXTS["figure"]):
        assert word in rows[0]
    answer = cli("pretrained", "tiny-music")
    assert answer.code == 0
    assert answer.out == (folder / "tiny-music.md").read_text()
    for text in TEXTS.values():
        assert text in answer.out
    assert cli("pretrained", "pretrained:tiny-music").out == answer.out
    assert "usage: triptych pretrained" in cli("pretrained", "--help").out
    refused("pretrained", "tiny", says=["no pretrained model 'tiny'", "tiny-image"])
    refused("pretrained", "--all", says=["--all"])
    refused("pretrained", "tiny-image", "tiny-music", says=["unknown key tiny-music"])
    for path in folder.iterdir():
        path.unlink()
    assert "no pretrained model" in cli("pretrained").out


def test_data_that_are_elsewhere_are_asked_for(cli, folder: Path) -> None:
    answer = cli("evaluate", "music", "--checkpoint", "pretrained:tiny-music")
    assert answer.code == 2
    assert "does not exist; set --data to the folder of your data" in answer.err
