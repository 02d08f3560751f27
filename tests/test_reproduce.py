"""`scripts/reproduce`: a tiny row through the real command line, stops, refusals, the rows."""

from __future__ import annotations

import json
import signal
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import noisy_sources  # noqa: F401  # named by the settings below
import pytest
import yaml

from triptych.cli import main as cli
from triptych.errors import UserError
from triptych.tools import recipes

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))


def load_script() -> ModuleType:
    """The script, which has no suffix, as a module."""
    loader = SourceFileLoader("reproduce", str(ROOT / "scripts/reproduce"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["reproduce"] = module
    loader.exec_module(module)
    return module


reproduce = load_script()
SHIPPED = reproduce.read_rows(reproduce.ROWS)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    source = {
        "class_path": "noisy_sources.CopiedRows",
        "init_args": {"height": 2, "width": 2, "levels": 3, "train_size": 16, "validation_size": 4},
    }
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 1}
    content = {
        "data": {"source": source, "batch_size": 4, "samples": 0},
        "model": {"transformer": sizes},
        "run": {"name": "image/tiny"},
        "trainer": {
            "max_steps": 3,
            "val_check_interval": 3,
            "check_val_every_n_epoch": None,
            "num_sanity_val_steps": 0,
            "accelerator": "cpu",
        },
    }
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.fixture
def rows(config: Path, tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.yaml", config)


def write_rows(path: Path, config: Path, **fields: Any) -> Path:
    plain = {
        "domain": "image",
        "config": str(config),
        "metric": "bits_per_dim",
        "splits": ["test"],
        "options": ["--data.source.init_args.test_size", "5"],
        **fields,
    }
    path.write_text(yaml.safe_dump({"tiny": plain}), encoding="utf-8")
    return path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> int:
    monkeypatch.chdir(Path.cwd())  # the script changes the folder
    monkeypatch.setattr(sys, "argv", ["reproduce", *map(str, arguments)])
    return int(reproduce.main())


@pytest.mark.slow
def test_a_row_from_nothing_to_its_number(
    config: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    arguments = ("tiny", "--seed", 3, "--out", out, "--rows", rows)
    assert call(monkeypatch, *arguments) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["finished"]
    assert (result["row"], result["seed"], result["step"]) == ("tiny", 3, 3)
    assert result["minutes"] > 0
    assert result["train"][-2:] == ["--run.seed", "3"]
    evaluation = json.loads((out / "test.json").read_text())
    assert evaluation["count"] == 5, "options of the row reach the training"
    part = result["splits"]["test"]
    assert part["figure"] == evaluation["metrics"]["bits_per_dim"]
    assert part["verdict"] == "nothing to compare"

    # A training that had ended is found so; compared with a better figure it is worse.
    (out / "result.json").write_text(json.dumps({**result, "finished": False}))
    write_rows(rows, config, ours={"test": {0: part["figure"] - 0.2}}, tolerance=0.1)
    trained = (out / "run/metrics.csv").read_bytes()
    assert call(monkeypatch, *arguments) == 1
    again = json.loads((out / "result.json").read_text())
    assert again["finished"]
    assert again["minutes"] > result["minutes"]
    assert again["splits"]["test"] == part | {"verdict": "worse"}
    assert (out / "run/metrics.csv").read_bytes() == trained


# --- stops, with the command line replaced -----------------------------------------------------


class Commands:
    """Replaces the command line: records the calls and writes the files of the real one."""

    def __init__(self, out: Path, answers: list[int], saves: bool = True) -> None:
        self.out, self.answers, self.saves = out, answers, saves
        self.called: list[list[str]] = []

    def __call__(self, words: list[str]) -> int:
        self.called.append(words)
        (self.out / "run/checkpoints").mkdir(parents=True, exist_ok=True)
        if words[0] == "train":
            if self.saves:
                (self.out / "run/checkpoints/best.ckpt").write_bytes(b"")
            return self.answers.pop(0)
        file = Path(words[words.index("--json") + 1])
        evaluation = {"metrics": {"bits_per_dim": 1.5}, "details": {}, "checkpoint": {"step": 2}}
        file.write_text(json.dumps(evaluation))
        return 0

    def trainings(self) -> list[list[str]]:
        return [words for words in self.called if words[0] == "train"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_stopped_run_is_resumed(rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(out, [143, 0])
    monkeypatch.setattr(cli, "main", commands)
    arguments = ("tiny", "--out", out, "--rows", rows)
    assert call(monkeypatch, *arguments) == 143
    assert [words[0] for words in commands.called] == ["train"], "nothing is scored"
    assert "--resume" not in commands.called[0]
    before = json.loads((out / "result.json").read_text())
    assert not before["finished"]
    assert call(monkeypatch, *arguments) == 0
    after = json.loads((out / "result.json").read_text())
    assert after["finished"]
    assert after["minutes"] > before["minutes"] > 0
    assert all(words[-1] == "--resume" for words in commands.trainings()[1:])
    assert call(monkeypatch, *arguments) == 0
    assert len(commands.trainings()) == 2, "a finished run is not trained again"


def test_the_files_of_a_recipe_are_made_first(
    config: Path, rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    config.write_text(config.read_text() + "# data/digits\n")
    monkeypatch.setattr(recipes, "make", lambda name, words: calls.append(name))
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda p: p != Path("data/digits") and exists(p))
    commands = Commands(out, [1])
    monkeypatch.setattr(cli, "main", lambda words: calls.append(words[0]) or commands(words))
    out.mkdir()
    assert call(monkeypatch, "tiny", "--out", out, "--rows", rows) == 1
    assert calls == ["digits", "train"]


def test_max_minutes_stops_the_training_and_its_checkpoint_is_scored(
    rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(out, [0])

    def main(words: list[str]) -> int:
        if words[0] == "evaluate":
            return commands(words)
        stopped: list[int] = []
        former = signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
        commands(words)
        deadline = time.monotonic() + 20
        while not stopped and time.monotonic() < deadline:
            time.sleep(0.01)
        signal.signal(signal.SIGTERM, former)
        return 143 if stopped else 0

    monkeypatch.setattr(cli, "main", main)
    assert call(monkeypatch, "tiny", "--out", out, "--rows", rows, "--max-minutes", 0.003) == 0
    assert [words[0] for words in commands.called] == ["train", "evaluate"]
    assert not json.loads((out / "result.json").read_text())["finished"]
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_minutes_that_end_before_the_training_end_the_call(
    rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(words: list[str]) -> int:
        try:
            time.sleep(20)
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    monkeypatch.setattr(cli, "main", main)
    assert call(monkeypatch, "tiny", "--out", out, "--rows", rows, "--max-minutes", 0.003) == 1
    assert "before the training began" in capsys.readouterr().err


def test_a_run_that_never_saved_begins_anew_and_its_exit_code_is_returned(
    rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(out, [2, 0], saves=False)
    monkeypatch.setattr(cli, "main", commands)
    arguments = ("tiny", "--out", out, "--rows", rows)
    assert call(monkeypatch, *arguments) == 2
    (out / "run/left.txt").write_text("half a run")
    assert call(monkeypatch, *arguments) == 0
    assert all("--resume" not in words for words in commands.trainings())
    assert not (out / "run/left.txt").exists()


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "expected either the name"),
        (["other"], "no row other; the rows are tiny"),
        (["tiny", "--rows", "wrong.yaml"], "wrong.yaml holds no rows"),
        (["tiny", "--out", "rows.yaml"], "is a file"),
        (["tiny", "--out", "another"], "holds a run of another command (train music)"),
    ],
)
def test_wrong_use_ends_in_one_sentence(
    arguments: list[str],
    says: str,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, content in (("full", "{}"), ("another", '{"train": ["train", "music"]}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "result.json").write_text(content)
    (tmp_path / "wrong.yaml").write_text("tiny: {colour: red}")
    monkeypatch.setattr(cli, "main", lambda *_: pytest.fail("a command was run"))
    others = [] if "--rows" in arguments else ["--rows", rows]
    try:
        code = call(monkeypatch, *arguments, *others)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert says in capsys.readouterr().err


def test_a_metric_that_was_not_measured_is_named(out: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(cli, "main", Commands(out, []))
    row = reproduce.Row("r", "translation", "c.yaml", "bleu", ["test"])
    with pytest.raises(UserError, match="of bleu, but `triptych evaluate` gives bits_per_dim"):
        reproduce.score(row, out, "test")


# --- rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "figures", "good", "bad"),
    [
        ("nats_per_token", [0.5], [0.3, 0.5, 0.6], [0.6002, 2.0, float("nan"), float("inf")]),
        ("nats_per_token", [0.5, 0.7], [0.75, 0.8], [0.81]),
        ("bleu", [40.0, 41.0], [39.9, 50.0], [39.8, float("nan")]),
        ("rougeL", [8.0], [7.9, 20.0], [7.8, 2.0]),
    ],
)
def test_as_good_as_the_worst_seed_within_the_tolerance(
    metric: str, figures: list[float], good: list[float], bad: list[float]
) -> None:
    ours = {"test": dict(enumerate(figures))}
    row = reproduce.Row("r", "music", "c.yaml", metric, ["test"], ours=ours, tolerance=0.1)
    assert {row.verdict("test", figure) for figure in good} == {"reproduced"}
    assert {row.verdict("test", figure) for figure in bad} == {"worse"}
    assert row.verdict("validation", 0.0) == "nothing to compare"


@pytest.mark.parametrize("row", SHIPPED.values(), ids=lambda row: row.name)
def test_a_shipped_row_is_complete(row: Any) -> None:
    assert row.config.startswith(f"configs/{row.domain}/")
    assert (ROOT / row.config).is_file()
    named = [*row.ours, *([row.published["split"]] if row.published else [])]
    assert set(named) <= set(row.splits)
    if row.ours:
        assert all((row.tolerance, row.hardware, row.minutes, row.commit))


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("copied-rows", "rows"), ("copied-motifs", "motifs"), ("reversed", "reversed")],
)
def test_the_entropy_in_the_tables_is_the_recipe_s(name: str, recipe: str) -> None:
    row, made = SHIPPED[name], recipes.load(recipe)
    entropy = f"{made.entropy(made.Options()):.4f}"
    assert f"{row.published['figure']:.4f}" == entropy
    assert entropy in (ROOT / "docs/results.md").read_text(encoding="utf-8")
    for seen in row.ours.get("test", {}).values():
        assert float(entropy) * 0.99 < seen < float(entropy) * 1.05
