"""`scripts/reproduce`: a tiny row through the real command line, stops, refusals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import reproduce_runs  # noqa: E402
import reproductions  # noqa: E402

from triptych.errors import UserError  # noqa: E402

MEASURED = {"tolerance": 0.1, "hardware": "a machine", "minutes": 0.1, "commit": "abc"}


def load_script() -> ModuleType:
    """The script, which has no ending, as a module."""
    loader = SourceFileLoader("reproduce", str(ROOT / "scripts/reproduce"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


reproduce = load_script()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    source = {
        "class_path": "triptych.domains.image.synthetic.CopiedRows",
        "init_args": {"height": 2, "width": 2, "levels": 3, "train": 16, "validation": 4},
    }
    content = {
        "data": {"source": source, "batch_size": 4, "samples": 0},
        "model": {
            "transformer": {
                "n_layers": 1,
                "d_model": 8,
                "n_heads": 1,
                "feed_forward": {"class_path": "GELU", "init_args": {"d_ff": 8}},
            }
        },
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
        "options": ["--data.source.init_args.test", "5"],
        **fields,
    }
    path.write_text(yaml.safe_dump({"tiny": plain}), encoding="utf-8")
    return path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["reproduce", *map(str, arguments)])
    return int(reproduce.main())


@pytest.mark.slow
def test_a_row_from_nothing_to_its_number(
    config: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
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
    said = capfd.readouterr().out
    assert f"measured here  {part['figure']:.4f}" in said
    assert "in the table   not measured" in said

    # A training that had come to its end is found so, and beside a better figure it is worse.
    (out / "result.json").write_text(json.dumps({**result, "finished": False}))
    write_rows(rows, config, ours={"test": {0: part["figure"] - 0.2}}, **MEASURED)
    trained = (out / "run/metrics.csv").read_bytes()
    assert call(monkeypatch, *arguments) == 1
    assert "worse" in capfd.readouterr().out
    again = json.loads((out / "result.json").read_text())
    assert again["finished"]
    assert again["minutes"] > result["minutes"]
    assert again["splits"]["test"]["figure"] == part["figure"]
    assert (out / "run/metrics.csv").read_bytes() == trained


# --- stops, with the command line replaced -----------------------------------------------------


class Commands:
    """Stands in for `triptych`: notes what is called, leaves what the real one would leave."""

    def __init__(self, out: Path, answers: list[tuple[int, str]], saves: bool = True) -> None:
        self.out, self.answers, self.saves = out, answers, saves
        self.called: list[list[str]] = []
        self.seconds: list[float | None] = []

    def __call__(self, words: list[str], *, seconds: float | None = None) -> tuple[int, str]:
        self.called.append(words)
        self.seconds.append(seconds)
        (self.out / "run/checkpoints").mkdir(parents=True, exist_ok=True)
        if words[0] == "train":
            if self.saves:
                (self.out / "run/checkpoints/best.ckpt").write_bytes(b"")
            return self.answers.pop(0)
        file = Path(words[words.index("--json") + 1])
        evaluation = {"metrics": {"bits_per_dim": 1.5}, "details": {}, "checkpoint": {"step": 2}}
        file.write_text(json.dumps(evaluation))
        return 0, ""

    def trainings(self) -> list[list[str]]:
        return [words for words in self.called if words[0] == "train"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_stopped_run_is_gone_on_with(
    rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(out, [(143, "signal"), (143, "time"), (0, ""), (0, "")])
    monkeypatch.setattr(reproduce_runs, "triptych", commands)
    arguments = ("tiny", "--out", out, "--rows", rows)
    assert call(monkeypatch, *arguments) == 143
    assert [words[0] for words in commands.called] == ["train"], "nothing is scored"
    assert "--resume" not in commands.called[0]
    # Stopped by the clock: what is there is scored, and said to be unfinished.
    assert call(monkeypatch, *arguments, "--max-minutes", 0.5) == 0
    assert commands.seconds[1] == pytest.approx(30, abs=5)
    assert [words[0] for words in commands.called[1:]] == ["train", "evaluate"]
    before = json.loads((out / "result.json").read_text())
    assert not before["finished"]
    assert call(monkeypatch, *arguments) == 0
    after = json.loads((out / "result.json").read_text())
    assert after["finished"]
    assert after["minutes"] > before["minutes"] > 0
    assert all(words[-1] == "--resume" for words in commands.trainings()[1:])
    assert call(monkeypatch, *arguments) == 0
    assert len(commands.trainings()) == 3, "a finished run is not trained again"


def test_a_figure_worse_than_the_table_is_exit_code_1(
    config: Path, rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(out, [(0, "")])
    monkeypatch.setattr(reproduce_runs, "triptych", commands)
    minutes = []
    for figure, code in ((1.41, 0), (1.39, 1), (2.0, 0)):  # 1.5 is measured, 0.1 is allowed
        write_rows(rows, config, ours={"test": {0: figure}}, **MEASURED)
        assert call(monkeypatch, "tiny", "--out", out, "--rows", rows) == code
        minutes.append(json.loads((out / "result.json").read_text())["minutes"])
    assert minutes[0] == minutes[1] > 0
    (training,) = commands.trainings()
    assert training[4:8] == ["--data.source.init_args.test", "5", "--run.seed", "0"]


def test_a_run_that_never_saved_begins_anew(
    rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(out, [(-9, ""), (143, "time")], saves=False)
    monkeypatch.setattr(reproduce_runs, "triptych", commands)
    arguments = ("tiny", "--out", out, "--rows", rows)
    assert call(monkeypatch, *arguments) == 137
    (out / "run/left.txt").write_text("half a run")
    assert call(monkeypatch, *arguments, "--max-minutes", 1) == 1
    assert len(commands.called) == 2, "nothing was saved, so nothing is scored"
    assert all("--resume" not in words for words in commands.called)
    assert not (out / "run/left.txt").exists()


def test_a_training_that_fails_hands_its_exit_code_on(
    rows: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(out, [(2, ""), (1, "")])
    monkeypatch.setattr(reproduce_runs, "triptych", commands)
    assert call(monkeypatch, "tiny", "--out", out, "--rows", rows) == 2
    assert call(monkeypatch, "tiny", "--out", out, "--rows", rows, "--max-minutes", 1) == 1
    assert len(commands.called) == 2


def test_a_signal_reaches_the_training_and_time_runs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src/triptych"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "cli.py").write_text(
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "def stop(*_):\n"
        "    Path('stopped').write_text('')\n"
        "    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "Path('ready').write_text('')\n"
        "time.sleep(0 if sys.argv[1] == 'short' else 60)\n"
    )
    monkeypatch.setattr(reproduce_runs, "ROOT", tmp_path)
    assert reproduce_runs.triptych(["short"], seconds=60) == (0, "")
    assert reproduce_runs.triptych(["long"], seconds=2) == (143, "time")
    for name in ("ready", "stopped"):
        (tmp_path / name).unlink()
    # The signal comes from outside, to this process alone.
    sender = (
        "import os, pathlib, signal, time\n"
        "while not pathlib.Path('ready').exists(): time.sleep(0.05)\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
    )
    before = signal.getsignal(signal.SIGINT)
    started = time.monotonic()
    other = subprocess.Popen([sys.executable, "-c", sender], cwd=tmp_path)
    assert reproduce_runs.triptych(["long"]) == (143, "signal")
    assert other.wait() == 0
    assert time.monotonic() - started < 30
    assert (tmp_path / "stopped").exists()
    assert signal.getsignal(signal.SIGINT) is before


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "expected one of the name"),
        (["tiny", "--list"], "expected one of the name"),
        (["tiny", "--seed", "-1"], "--seed must be 0 or more"),
        (["tiny", "--max-minutes", "0"], "above 0"),
        (["other"], "no row other; the rows are tiny"),
        (["tiny", "--rows", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["tiny", "--out", "rows.yaml"], "is a file"),
        (["tiny", "--out", "full"], "is not empty and holds no result.json"),
        (["tiny", "--out", "another"], "holds a run of another command (triptych train music)"),
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
    for folder, content in (("full", "{}"), ("another", '{"train": ["triptych train music"]}')):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "result.json").write_text(content)
    monkeypatch.setattr(reproduce_runs, "triptych", lambda *_, **__: pytest.fail("it was run"))
    others = [] if "--rows" in arguments else ["--rows", rows]
    try:
        code = call(monkeypatch, *arguments, *others)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert says in capsys.readouterr().err


def test_a_metric_that_was_not_measured_is_named() -> None:
    row = reproductions.Row("r", "translation", "c.yaml", "bleu_papers", ["test"])
    with pytest.raises(UserError, match="bleu_papers, but `triptych evaluate` gives bleu, chrf"):
        reproduce.compare(row, "test", {"metrics": {"bleu": 1.0, "chrf": 2.0}, "details": {}})
