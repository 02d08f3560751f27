"""`scripts/export_pretrained`: what it writes and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from export_cases import OPTIONS, SCRIPT, TEXTS, rewritten

from triptych import pretrained
from triptych.errors import UserError
from triptych.tools.export.card import portable


@pytest.fixture
def export(
    checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
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


def test_nothing_is_replaced_without_being_asked(export, tmp_path: Path) -> None:
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


def test_every_text_is_needed_and_kept_for_the_next_time(export, tmp_path: Path) -> None:
    for key in TEXTS:
        rest = [word for k, text in TEXTS.items() if k != key for word in (f"--{k}", text)]
        assert f"the card needs --{key}" in export(*rest)
    assert not (tmp_path / "new").exists()
    assert not export(*OPTIONS, "--limits", "It cannot count.")
    first = (tmp_path / "new/one.md").read_text()
    assert "It cannot count." in first
    assert not export("--force")
    assert (tmp_path / "new/one.md").read_text() == first


def test_the_commit_can_be_told_where_the_training_knew_of_none(
    export, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    def without(content: dict[str, Any]) -> None:
        content["triptych"]["commit"] = None

    unknown = rewritten(checkpoints["translation"], tmp_path / "unknown.ckpt", without)
    made = {"checkpoint": unknown}
    assert not export(*OPTIONS, **made)
    assert "commit unknown" in (tmp_path / "new/one.md").read_text()
    assert not export("--force", "--commit", "abc123", **made)
    assert "commit abc123" in (tmp_path / "new/one.md").read_text()
    assert not export("--force", **made)  # the same weights: it is kept
    assert json.loads((tmp_path / "new/one.json").read_text())["triptych"]["commit"] == "abc123"

    def known(content: dict[str, Any]) -> None:
        content["triptych"]["commit"] = "def456"

    made = {"checkpoint": rewritten(unknown, tmp_path / "known.ckpt", known)}
    said = export("--force", "--commit", "abc123", **made)
    assert "--commit is abc123, but" in said
    assert "was made with def456" in said


def test_no_path_of_this_machine_goes_in(export, tmp_path: Path, music_run) -> None:
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
        ("run.start.init_from", "/scratch/runs/a/checkpoints/best.ckpt", "best.ckpt"),
        ("run.start.init_from", "runs/a/checkpoints/best.ckpt", "runs/a/checkpoints/best.ckpt"),
        ("run.start.init_from", "pretrained:mnist", "pretrained:mnist"),
        ("data.source.directory", "/data/mine", None),
        ("data.source.directory", "~/mine", None),
        ("data.source.directory", "C:\\mine", None),
    ],
)
def test_which_paths(key: str, path: str, becomes: str | None) -> None:
    first, *rest, last = key.split(".")
    inner: Any = {last: [path]} if last == "files" else {last: path}
    for word in reversed(rest):
        inner = {word: {"class_path": "a.B", "init_args": inner}}
    settings = {first: inner}
    if becomes is None:
        with pytest.raises(UserError, match=f"{key} is "):
            portable(settings)
    else:
        text = json.dumps(portable(settings))
        assert text == json.dumps(settings).replace(json.dumps(path), json.dumps(becomes))


@pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "a b", "a-", "pretrained:a"])
def test_names_are_plain(export, name: str) -> None:
    assert "NAME is " in export(*OPTIONS, name=name)


def test_scores_of_both_stand_in_the_card(export, tmp_path: Path) -> None:
    def score(file: str, **changes: Any) -> Path:
        content = {
            "domain": "translation", "split": "test", "dtype": "fp32", "limit": None,
            "metrics": {"bleu": 12.25 if file.endswith("ckpt") else 12.5},
            "details": {"search": {"beam": 5}}, "checkpoint": {"file": file, "step": 3},
        } | changes  # fmt: skip
        path = tmp_path / f"score-{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps(content))
        return path

    full, rounded = score("runs/a.ckpt"), score("pretrained:one")
    assert not export(*OPTIONS, "--scores", full)
    assert "| test, `--beam 5` | bleu | 12.2500 | — |" in (tmp_path / "new/one.md").read_text()
    assert not export("--force", "--scores", rounded)
    card = (tmp_path / "new/one.md").read_text()
    assert "| test, `--beam 5` | bleu | 12.2500 | 12.5000 |" in card
    facts = pretrained.read_metadata(tmp_path / "new/one.safetensors")
    both = {"options": "--beam 5", "fp32": {"bleu": 12.25}, "rounded": {"bleu": 12.5}}
    assert facts["metrics"]["test"] == both
    windows = {"sequence_length": 64, "overlap": 0}
    assert "options --sequence_length 64 --overlap 0; expected --beam 5" in export(
        "--force", "--scores", full, score("pretrained:one", details=windows)
    )
    assert not export("--force", "--scores", score("pretrained:one", details=windows))
    facts = pretrained.read_metadata(tmp_path / "new/one.safetensors")
    assert facts["metrics"]["test"] == {
        "options": "--sequence_length 64 --overlap 0", "rounded": {"bleu": 12.5},
    }  # fmt: skip
    for changes, says in [
        ({"domain": "music"}, "the domain music; expected translation"),
        ({"checkpoint": {"file": "a", "step": 4}}, "step 4; expected 3"),
        ({"dtype": "bf16"}, "dtype bf16; expected fp32"),
        ({"limit": 5}, "limit 5; expected None"),
        ({"checkpoint": {"file": "pretrained:two", "step": 3}}, "is of pretrained:two"),
        ({"checkpoint": {}}, "not from `triptych evaluate --json`"),
    ]:
        assert says in export("--force", "--scores", score("a", **changes))
    assert "cannot be read" in export("--force", "--scores", tmp_path / "none.json")


def test_another_checkpoint_loses_the_scores_of_the_first(
    export, tmp_path: Path, checkpoints: dict[str, Path]
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
    export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = SCRIPT.from_safetensors

    def wrong(*arguments: Any, **options: Any) -> dict[str, Any]:
        content = original(*arguments, **options)
        next(iter(content["state_dict"].values()))[0] += 1
        return content

    monkeypatch.setattr(SCRIPT, "from_safetensors", wrong)
    with pytest.raises(RuntimeError, match="the export has other values"):
        export(*OPTIONS)
    assert not (tmp_path / "new").exists()
