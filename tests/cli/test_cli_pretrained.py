"""`pretrained:NAME`: exported, listed, opened like any checkpoint, and refused in one sentence."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import triptych
from triptych import pretrained
from triptych.errors import UserError
from triptych.training.checkpoint import read_checkpoint

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {
    "what": "Draws tiny things",
    "data": "A source made up by this test",
    "terms": "nobody's, free of any",
    "time": "three steps",
    "hardware": "whatever runs the tests",
    "figure": "4.2 units on test",
}
OPTIONS = [word for key, text in TEXTS.items() for word in (f"--{key}", text)]


def load_script() -> ModuleType:
    loader = SourceFileLoader("export_pretrained", str(ROOT / "scripts/export_pretrained"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


SCRIPT = load_script()


def rewritten(path: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint with something in it changed."""
    content = torch.load(path, weights_only=True)
    change(content)
    torch.save(content, target)
    return target


def round_weights(content: dict[str, Any]) -> None:
    content["state_dict"] = {
        key: value.bfloat16().float() for key, value in content["state_dict"].items()
    }


@pytest.fixture(scope="session")
def checkpoints(
    image_checkpoint: Path,
    translation_checkpoint: Path,
    music_run: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """One checkpoint a domain; that of music has lost the path of this machine's data."""

    def move(content: dict[str, Any]) -> None:
        source = content["triptych"]["config"]["data"]["source"]
        source["init_args"]["directory"] = "/somebody/shared/data/nowhere"

    folder = tmp_path_factory.mktemp("moved")
    music = rewritten(music_run.checkpoint, folder / "music.ckpt", move)
    return {"image": image_checkpoint, "translation": translation_checkpoint, "music": music}


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
    if domain == "music":
        source = block["config"]["data"]["source"]["init_args"]
        assert source["directory"] == "../shared/data/nowhere"
        source["directory"] = "/somebody/shared/data/nowhere"
    assert block == before["triptych"]
    assert all(
        t.dtype == torch.bfloat16 for t in load_file(folder / f"tiny-{domain}.safetensors").values()
    )


def test_tied_tensors_are_stored_once_and_come_back_tied(folder: Path) -> None:
    stored = load_file(folder / "tiny-translation.safetensors")
    source, target = (f"model.{side}_embedding.table.weight" for side in ("source", "target"))
    assert source in stored
    assert target not in stored
    state = read_checkpoint(pretrained.find("tiny-translation"))["state_dict"]
    assert state[target].data_ptr() == state[source].data_ptr()
    model = triptych.load("pretrained:tiny-translation", device="cpu").task.model
    assert model.source_embedding.table.weight is model.target_embedding.table.weight
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == sum(tensor.numel() for tensor in stored.values())
    assert json.loads((folder / "tiny-translation.json").read_text())["parameters"] == parameters


@pytest.mark.parametrize("domain", ["image", "music"])
def test_samples_are_those_of_the_rounded_checkpoint(
    cli, folder: Path, checkpoints: dict[str, Path], tmp_path: Path, domain: str
) -> None:
    rounded = rewritten(checkpoints[domain], tmp_path / "rounded.ckpt", round_weights)
    length = ["--length", 40] if domain == "music" else []
    drawn = []
    for source in (f"pretrained:tiny-{domain}", rounded):
        out = tmp_path / f"out-{len(drawn)}"
        answer = cli(
            "sample", domain, "--checkpoint", source, "--out", out, "--count", 2,
            "--device", "cpu", *length,
        )  # fmt: skip
        assert answer.code == 0, answer.err
        drawn.append({path.name: path.read_bytes() for path in out.glob("*.[mp][in][dg]")})
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) >= 3


def test_translations_and_scores_are_those_of_the_rounded_checkpoint(
    cli, folder: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    rounded = rewritten(checkpoints["translation"], tmp_path / "rounded.ckpt", round_weights)
    name = "pretrained:tiny-translation"
    texts, scores = [], []
    for source in (name, rounded):
        answer = cli("translate", "--checkpoint", source, "--device", "cpu", stdin=b"one\ntwo\n")
        assert answer.code == 0, answer.err
        texts.append(answer.out)
        command = ["evaluate", "translation", "--checkpoint", source, "--limit", 2]
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
    assert triptych.load("./pretrained:mine", device="cpu").config
    assert triptych.load(Path("pretrained:mine"), device="cpu").config
    refused("translate", "--checkpoint", "pretrained:mine", says=["no pretrained model 'mine'"])


@pytest.mark.parametrize("command", ["evaluate", "sample", "translate"])
def test_an_unknown_name_is_answered_with_those_there_are(
    refused, folder: Path, command: str
) -> None:
    options = {
        "evaluate": ["evaluate", "image", "--json", "new/score.json"],
        "sample": ["sample", "image", "--out", "new/folder"],
        "translate": ["translate"],
    }[command]
    for name in ("x", "../x"):
        says = [f"no pretrained model {name!r}", "tiny-image, tiny-music, tiny-translation"]
        refused(*options, "--checkpoint", f"pretrained:{name}", says=says)
    refused(*options, "--checkpoint", "pretrained:tiny-imag", says=["mean pretrained:tiny-image?"])
    with pytest.raises(UserError, match="tiny-image, tiny-music"):
        triptych.load("pretrained:x")
    for path in folder.iterdir():
        path.unlink()
    refused(*options, "--checkpoint", "pretrained:x", says=["none comes with this installation"])


def test_a_model_of_another_domain(refused, folder: Path) -> None:
    says = ["of the domain music", "expected a checkpoint of the domain image"]
    refused("sample", "image", "--checkpoint", "pretrained:tiny-music", "--out", "a", says=says)


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
        (lambda f: cut(f / "tiny-image.safetensors"), ["safetensors are damaged", "sha256"]),
        (lambda f: cut(f / "tiny-image.json"), ["tiny-image.json is damaged", "no JSON"]),
        (lambda f: change_facts(f, "tiny-image", format=2), ["format 2;", "reads format 1"]),
        (lambda f: change_facts(f, "tiny-image", format=None), ["has no format number"]),
        (lambda f: change_facts(f, "tiny-image", tied=None), ["is damaged, it lacks tied"]),
        (lambda f: change_facts(f, "tiny-image", triptych={}), ["not written by Triptych"]),
        (lambda f: (f / "tiny-image.json").unlink(), ["tiny-image.json is missing"]),
        (lambda f: (f / "tiny-image.safetensors").unlink(), ["tiny-image.safetensors is missing"]),
    ],
    ids=["bit", "cut", "json", "format", "no-format", "lacks", "block", "no-json", "no-weights"],
)  # fmt: skip
def test_what_is_damaged_is_told_in_a_sentence(
    refused, folder: Path, change: Callable[[Path], None], says: list[str]
) -> None:
    change(folder)
    command = ["sample", "image", "--checkpoint", "pretrained:tiny-image", "--out", "new"]
    refused(*command, says=says)


@pytest.mark.parametrize(
    "words",
    [["--resume", "pretrained:tiny-image"], ["--resume", "--run.name=pretrained:tiny-image"]],
    ids=" ".join,
)
def test_training_does_not_go_on_from_one(
    refused, folder: Path, digits_yaml: Path, words: list[str]
) -> None:
    says = ["cannot go on from pretrained:tiny-image", "--resume alone"]
    refused("train", "image", "--config", digits_yaml, *words, says=says)


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
    refused("pretrained", "--all", says=["unexpected '--all'", "one NAME"])
    refused("pretrained", "tiny-image", "tiny-music", says=["unexpected 'tiny-music'"])
    (folder / "tiny-music.md").unlink()
    refused("pretrained", "tiny-music", says=["tiny-music.md is missing"])
    for path in folder.iterdir():
        path.unlink()
    assert "no pretrained model" in cli("pretrained").out


class TestExport:
    """`scripts/export_pretrained`: what it writes and what it refuses."""

    @pytest.fixture
    def export(
        self, checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> Callable[..., str]:
        """Export the translation model into tmp_path/new; what was said of an error, or ''."""

        def call(*words: Any, checkpoint: Path | None = None, name: str = "one") -> str:
            path = checkpoint or checkpoints["translation"]
            command = [path, name, "--folder", tmp_path / "new", *words]
            capsys.readouterr()
            code = SCRIPT.main([str(word) for word in command])
            said = capsys.readouterr().err
            assert code == (2 if said else 0)
            assert said.count("\n") == (1 if said else 0)
            return said

        return call

    def test_nothing_is_replaced_without_being_asked(self, export, tmp_path: Path) -> None:
        assert not export(*OPTIONS)
        names = {"one.safetensors", "one.json", "one.md"}
        before = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
        assert before.keys() == names
        other = [*OPTIONS, "--what", "Something else"]
        assert "there already; --force replaces it" in export(*other)
        (tmp_path / "new/one.json").unlink()
        assert "there already" in export(*other), "a part of a model is one too"
        (tmp_path / "new/one.json").write_bytes(before["one.json"])
        assert before == {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
        assert not export(*other, "--force")
        assert "Something else" in (tmp_path / "new/one.md").read_text()

    def test_every_text_is_needed_and_kept_for_the_next_time(self, export, tmp_path: Path) -> None:
        for key in TEXTS:
            rest = [word for k, text in TEXTS.items() if k != key for word in (f"--{k}", text)]
            assert f"the card needs --{key}" in export(*rest)
        assert not (tmp_path / "new").exists()
        assert not export(*OPTIONS, "--limits", "It cannot count.")
        first = (tmp_path / "new/one.md").read_text()
        assert "It cannot count." in first
        assert not export("--force")
        assert (tmp_path / "new/one.md").read_text() == first

    def test_no_path_of_this_machine_goes_in(self, export, tmp_path: Path, music_run) -> None:
        said = export(*OPTIONS, checkpoint=music_run.checkpoint)
        assert "data.source.directory is /" in said
        assert "a path of this machine; expected one like ../shared/data/NAME" in said
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize(
        ("key", "path", "becomes"),
        [
            ("data.source.directory", "/some/x/shared/data/jsb", "../shared/data/jsb"),
            ("data.source.directory", "shared/data/a/b", "../shared/data/a/b"),
            ("data.source.directory", "../shared/data/jsb", "../shared/data/jsb"),
            ("data.source.directory", "data/mine", "data/mine"),
            ("data.source.files", "{language}.gz | b.gz", "{language}.gz | b.gz"),
            ("run.directory", "/scratch/runs", "runs"),
            ("data.cache", "~/cache", "auto"),
            ("data.source.directory", "/data/mine", None),
            ("data.source.directory", "~/mine", None),
            ("data.source.directory", "C:\\mine", None),
        ],
    )
    def test_which_paths(self, key: str, path: str, becomes: str | None) -> None:
        first, *rest, last = key.split(".")
        inner: Any = {last: [path]} if last == "files" else {last: path}
        for word in reversed(rest):
            inner = {word: {"class_path": "a.B", "init_args": inner}}
        settings = {first: inner}
        if becomes is None:
            with pytest.raises(UserError, match=f"{key} is "):
                SCRIPT.portable(settings)
        else:
            text = json.dumps(SCRIPT.portable(settings))
            assert text == json.dumps(settings).replace(json.dumps(path), json.dumps(becomes))

    @pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "a b", "a-", "pretrained:a"])
    def test_names_are_plain(self, export, name: str) -> None:
        assert "NAME is " in export(*OPTIONS, name=name)

    def test_a_checkpoint_that_is_none(self, export, tmp_path: Path) -> None:
        (tmp_path / "text.ckpt").write_text("hello")
        for name, says in [("text.ckpt", "no checkpoint file"), ("none.ckpt", "does not exist")]:
            assert says in export(*OPTIONS, checkpoint=tmp_path / name)
        assert not (tmp_path / "new").exists()

    def test_scores_of_both_stand_in_the_card(self, export, tmp_path: Path) -> None:
        def score(file: str, **changes: Any) -> Path:
            content = {
                "domain": "translation", "split": "test", "weights": "fp32", "limit": None,
                "metrics": {"bleu": 12.25 if file.endswith("ckpt") else 12.5},
                "checkpoint": {"file": file, "step": 3},
            } | changes  # fmt: skip
            path = tmp_path / f"score-{len(list(tmp_path.iterdir()))}.json"
            path.write_text(json.dumps(content))
            return path

        full, rounded = score("runs/a.ckpt"), score("pretrained:one")
        assert not export(*OPTIONS, "--scores", full)
        assert "| test | bleu | 12.2500 | — |" in (tmp_path / "new/one.md").read_text()
        assert not export("--force", "--scores", rounded)
        assert "| test | bleu | 12.2500 | 12.5000 |" in (tmp_path / "new/one.md").read_text()
        facts = pretrained.read_facts(tmp_path / "new/one.safetensors")
        assert facts["metrics"]["test"] == {"fp32": {"bleu": 12.25}, "bf16": {"bleu": 12.5}}
        for changes, says in [
            ({"domain": "music"}, "the domain music; expected translation"),
            ({"checkpoint": {"file": "a", "step": 4}}, "step 4; expected 3"),
            ({"weights": "bf16"}, "weights bf16; expected fp32"),
            ({"limit": 5}, "limit 5; expected None"),
            ({"checkpoint": {"file": "pretrained:two", "step": 3}}, "is of pretrained:two"),
            ({"checkpoint": {}}, "not from `triptych evaluate --json`"),
        ]:
            assert says in export("--force", "--scores", score("a", **changes))
        assert "cannot be read" in export("--force", "--scores", tmp_path / "none.json")

    def test_another_checkpoint_loses_the_scores_of_the_first(
        self, export, tmp_path: Path, checkpoints: dict[str, Path]
    ) -> None:
        assert not export(*OPTIONS)
        path = tmp_path / "new/one.json"
        facts = json.loads(path.read_text())
        facts["metrics"]["test"] = {"fp32": {"bleu": 77.0}}
        path.write_text(json.dumps(facts))

        def halve(content: dict[str, Any]) -> None:
            content["state_dict"] = {k: v / 3 for k, v in content["state_dict"].items()}

        other = rewritten(checkpoints["translation"], tmp_path / "other.ckpt", halve)
        assert not export("--force")
        assert "77.0" in (tmp_path / "new/one.md").read_text()
        assert not export("--force", checkpoint=other)
        assert "77.0" not in (tmp_path / "new/one.md").read_text()

    def test_a_tensor_that_came_back_otherwise_is_no_export(
        self, export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = SCRIPT.unpack

        def wrong(*arguments: Any, **options: Any) -> dict[str, Any]:
            content = original(*arguments, **options)
            next(iter(content["state_dict"].values()))[0] += 1
            return content

        monkeypatch.setattr(SCRIPT, "unpack", wrong)
        with pytest.raises(RuntimeError, match="came back with other values"):
            export(*OPTIONS)
        assert not (tmp_path / "new").exists()
