"""Samples are files first; progress is a line that a terminal rewrites."""

from __future__ import annotations

import io
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toy_task import ToyTask, toy_run

from triptych.errors import Diverged
from triptych.training.callbacks.progress import ShowProgress
from triptych.training.lightning_fixes import quiet_lightning
from triptych.training.loggers import RunLogger
from triptych.training.run import trainer as run_module


class Shows(RunLogger):
    """Keep the samples that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        pass

    def log_files(self, files: Any, step: int) -> None:
        self.got.append(([path.name for path in files], step))


class WithoutSamples(ToyTask):
    def log_samples(self, folder: Path) -> None:
        pass


def test_samples_go_to_the_loggers(tmp_path: Path) -> None:
    shows = Shows()
    toy_run(tmp_path / "toy", logger=shows)
    assert shows.got == [(["words.csv"], 3), (["words.csv"], 6)]


def test_no_folder_is_left_where_nothing_is_sampled(tmp_path: Path) -> None:
    shows = Shows()
    toy_run(tmp_path / "toy", WithoutSamples(), logger=shows)
    assert shows.got == []
    assert list((tmp_path / "toy").glob("samples/*")) == []


def test_the_time_left_is_that_of_the_steps_since_the_start(monkeypatch) -> None:
    """A run that goes on at step 10: 20 steps in 40 s leave 160 s for 80 more."""
    now = [100.0]
    monkeypatch.setattr("triptych.training.callbacks.progress.time.monotonic", lambda: now[0])
    trainer: Any = SimpleNamespace(global_step=10)
    for total, expected in ((110, [None, 130 * 99, 160, 0, 0]), (None, [None] * 5)):
        task: Any = SimpleNamespace(total_steps=lambda total=total: total)
        progress = ShowProgress(task)
        progress.on_train_start(trainer)
        times = {10: 110.0, 11: 230.0, 30: 140.0, 110: 300.0, 120: 310.0}
        assert [progress.seconds_left(step, time) for step, time in times.items()] == expected


def test_plain_lines_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        run_module, "ShowProgress", lambda task: ShowProgress(task, seconds_between=0)
    )
    toy_run(tmp_path / "toy", enable_progress_bar=True)
    out, err = capsys.readouterr()
    line = r"step 4/6  loss \d\.\d{4}  [\d,]+ tokens/s  data \d+%  0:00:\d\d left"
    assert re.search(line, out), out
    assert re.search(r"validation at step 6: nats_per_token \d\.\d+  exact_match 0\.5", out)
    assert "\x1b[" not in out
    assert "GPU available" not in out + err
    assert "max_steps" not in out + err, "Lightning's own notices are quiet"


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal that shows every step; no fixture, since pytest changes stdout after them."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(ShowProgress, "on_train_start", forever_due(ShowProgress.on_train_start))
    return screen


def test_the_message_of_an_error_begins_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    with pytest.raises(Diverged):
        toy_run(tmp_path / "toy", ToyTask(poison_at=2), enable_progress_bar=True)
    assert re.search(r"step 2/6  [^\n\r]* left *\n$", screen.getvalue())


def test_one_line_is_rewritten_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    toy_run(tmp_path / "toy", enable_progress_bar=True)
    lines = [line.split("\r")[-1] for line in screen.getvalue().split("\n")]
    assert screen.getvalue().count("step 4/6") == 1
    assert not any(line.startswith("step") for line in lines), "every one is overwritten"
    assert any(line.startswith("validation at step 6: nats_per_token") for line in lines)


def forever_due(original: Any) -> Any:
    def start(self: ShowProgress, *arguments: Any) -> None:
        original(self, *arguments)
        self.seconds_between = 0.0

    return start


def test_real_warnings_are_not_hidden() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quiet_lightning()
        warnings.warn("something that matters", stacklevel=1)
        warnings.warn("train_dataloader does not have many workers", stacklevel=1)
    assert [str(item.message) for item in caught] == ["something that matters"]
